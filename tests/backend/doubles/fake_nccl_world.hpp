// SPDX-License-Identifier: Apache-2.0
// The state that the ranks of the NCCL double share, in one process or in several.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/gpu/nccl/library.hpp"
#include "fake_cuda.hpp"
#include "nccl_memory.hpp"

namespace kolo::internal::backend {

/// All members require the mutex. Complaints are kept per process.
class FakeNcclWorld {
 public:
  /// A world for ranks of this process.
  FakeNcclWorld() = default;
  /// A world for the ranks of all `processes` that give this name.
  FakeNcclWorld(const std::string& name, int processes) : mapping_(name, processes) {}

  /// The world of the processes that mpirun started together, or of this process without mpirun.
  /// All processes must create their worlds in the same order.
  [[nodiscard]] static std::shared_ptr<FakeNcclWorld> of_job();

  [[nodiscard]] SharedMutex& mutex() const { return mapping_.memory().mutex; }
  [[nodiscard]] nccl::UniqueId make_id();
  /// Adds a rank to the communicator with this id.
  [[nodiscard]] NcclClique& join(const nccl::UniqueId& id, int size);
  /// Ends a rank's part of a communicator. The clique must not be used after its last rank has
  /// left.
  static void leave(NcclClique& clique);
  /// The id of a communicator derived from `parent`, equal for all ranks that ask for the same
  /// turn.
  [[nodiscard]] nccl::UniqueId child(NcclClique& parent, std::uint32_t excluded, int turn);

  void complain(const std::string& text) { complaints_.push_back(text); }
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  [[nodiscard]] NcclClique* find(std::uint64_t number) const;

  NcclMapping mapping_{};
  std::vector<std::string> complaints_{};
};

/// A collective of one rank.
struct NcclCollective {
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

  Kind kind{};
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t count = 0;  // number of elements; per rank if ranks have parts
  DType dtype = DType::u8;
  nccl::RedOp op = nccl::RedOp::sum;
  int root = 0;
};

/// The place where a kernel runs. All references must outlive it.
struct NcclPlace {
  FakeNcclWorld& world;
  FakeCuda& cuda;
  NcclClique& clique;
  int rank;
};

/// Work for a stream. `number` counts the earlier collectives of this rank in the communicator, or
/// the earlier messages on the channel.
[[nodiscard]] FakeCuda::Work collective_kernel(const NcclPlace& place,
                                               const NcclCollective& collective,
                                               const NcclCall& call, std::uint64_t number);
[[nodiscard]] FakeCuda::Work send_kernel(const NcclPlace& place, const void* from,
                                         std::int64_t bytes, int peer, std::uint64_t number);
[[nodiscard]] FakeCuda::Work receive_kernel(const NcclPlace& place, void* to, std::int64_t bytes,
                                            int peer, std::uint64_t number);

}  // namespace kolo::internal::backend
