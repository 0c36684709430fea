// SPDX-License-Identifier: Apache-2.0
// The memory through which the ranks of the NCCL double exchange data: private to a process, or
// shared by the processes of a job. It contains no pointers, and its initial state is all zeros.
#pragma once

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "backend/gpu/nccl/library.hpp"

namespace kolo::internal::backend {

/// A mutex between threads and processes. If a process ends while it holds the mutex, the others
/// continue.
class SharedMutex {
 public:
  void init();
  void lock();
  void unlock();
  [[nodiscard]] bool try_lock();

 private:
  pthread_mutex_t mutex_;
};

/// The parts of a collective that must be equal on all ranks.
struct NcclCall {
  std::array<char, 160> name;
  std::array<char, 160> places;  // in registered memory
};

/// The slot of one rank in a communicator. Ranks exchange chunks in rounds, which are counted over
/// all collectives.
struct NcclSlot {
  static constexpr std::int64_t chunk_bytes = std::int64_t{64} << 10;

  std::uint64_t collectives;  // collectives done by this rank
  std::uint64_t deposited;    // rounds for which it has written its chunk
  std::uint64_t taken;        // rounds of which it has read all chunks
  NcclCall call;
  std::array<std::byte, chunk_bytes> chunk;
};

/// The channel from one rank to another.
struct NcclChannel {
  static constexpr std::int64_t chunk_bytes = std::int64_t{16} << 10;

  std::uint64_t sends;     // completed sends
  std::uint64_t receives;  // completed receives
  std::uint64_t deposited;
  std::uint64_t taken;
  std::int64_t message_bytes;
  std::array<std::byte, chunk_bytes> chunk;
};

/// The state of a communicator that its ranks share.
struct NcclClique {
  static constexpr std::size_t max_ranks = 8;
  /// A communicator derived from this one.
  struct Child {
    std::uint64_t number;  // 0: none
    std::uint32_t excluded;
    int turn;  // counts the shrinks that exclude these ranks
  };

  std::uint64_t number;  // 0: unused
  int size;
  int joined;
  int aborted;
  int connected;   // ranks that have called a collective
  int registered;  // pieces of memory, of all ranks
  int ended;
  /// The process id of each rank, until it begins to destroy or to abort the communicator.
  std::array<int, max_ranks> processes;
  std::array<Child, 16> children;
  std::array<NcclSlot, max_ranks> slots;
  std::array<std::array<NcclChannel, max_ranks>, max_ranks> channels;  // from, to
};

struct NcclMemory {
  SharedMutex mutex;
  std::uint64_t ids;
  int processes;  // processes that have mapped the memory
  std::array<NcclClique, 64> cliques;
};

/// Maps memory; the system provides only pages that are touched.
class NcclMapping {
 public:
  /// Memory of this process alone.
  NcclMapping();
  /// Memory shared by the `processes` processes that give the same name; the last one removes the
  /// name. Throws std::system_error.
  NcclMapping(const std::string& name, int processes);
  ~NcclMapping();
  NcclMapping(const NcclMapping&) = delete;
  NcclMapping& operator=(const NcclMapping&) = delete;

  [[nodiscard]] NcclMemory& memory() const { return *memory_; }

 private:
  NcclMemory* memory_ = nullptr;
};

}  // namespace kolo::internal::backend
