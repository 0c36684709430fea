// SPDX-License-Identifier: Apache-2.0
// The interface to NCCL. Tests replace it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backend/gpu/runtime/runtime.hpp"
#include "kolo/types.hpp"

struct ncclComm;

namespace kolo::internal::backend::nccl {

using CommHandle = ncclComm*;  // ncclComm_t
using gpu::StreamHandle;
using UniqueId = std::array<char, 128>;  // ncclUniqueId

/// A call that returns `in_progress` continues until `state` returns `ready`. Until then the
/// communicator may only be aborted.
enum class State : std::uint8_t { ready, in_progress };

/// Memory that a communicator knows.
struct Registration {
  void* handle = nullptr;  // null: NCCL does not use it directly
  bool is_window = false;  // symmetric: at the same place of the window on all ranks
};

/// The values of ncclRedOp_t, without averages, since NVLink SHARP supports only sums.
enum class RedOp : std::int32_t { sum = 0, product = 1, max = 2, min = 3 };

/// Memory belongs to the current device. Every function that is not noexcept throws BackendError
/// with the name of the failed call and NCCL's reasons. One thread at a time makes calls on a
/// communicator; `state` and `abort` may be called meanwhile.
class Library {
 public:
  virtual ~Library() = default;

  /// NCCL's own encoding: 22809 is 2.28.9.
  [[nodiscard]] virtual int version() = 0;
  /// False before NCCL 2.27; `shrink` and `split` are then not called. The same in all libraries of
  /// a version.
  [[nodiscard]] virtual bool can_derive() { return true; }
  /// True if the user allows ranks to share a GPU: NCCL_MULTI_RANK_GPU_ENABLE is 1, with NCCL 2.30
  /// or later.
  [[nodiscard]] virtual bool allows_shared_gpus() { return false; }
  [[nodiscard]] virtual UniqueId make_unique_id() = 0;

  /// Does not block, but may be slow. It may set `comm` even if it throws; `comm` must then be
  /// aborted.
  [[nodiscard]] virtual State init(CommHandle& comm, int size, const UniqueId& id, int rank) = 0;
  /// Starts to create a communicator of the parent's ranks without the excluded ones, which do not
  /// call it. It returns no state, because NCCL 2.30 reports success while the child is still being
  /// created: the child exists once the parent is ready and `comm` is not null. NCCL may write
  /// `comm` until then, or until the parent is aborted, so `comm` must not move. Nothing else may
  /// be in progress on the parent.
  virtual void shrink(CommHandle& comm, CommHandle parent, std::span<const int> excluded) = 0;
  /// Starts to create a communicator of all of the parent's ranks, as `shrink` does. Its calls
  /// block until the work is queued: NCCL starts a thread for each group of a communicator whose
  /// calls do not block, which takes far longer.
  virtual void split(CommHandle& comm, CommHandle parent) = 0;
  /// The state of the last call. Throws if a call has failed since, on this or another rank.
  [[nodiscard]] virtual State state(CommHandle comm) = 0;
  /// Call it when all work is done. May be slow.
  virtual void destroy(CommHandle comm) noexcept = 0;
  /// Ends all work in progress on these communicators, in one group and in this order. A handle is
  /// read at its turn and skipped if it is null, since the abort of a parent may write its child's
  /// handle. Slow: it waits for the stream. `calls_end` waits until other threads have left their
  /// calls on the communicators, which these do soon once the abort has begun. If it returns false,
  /// the communicators are leaked, and so is the result.
  [[nodiscard]] virtual bool abort(std::span<const CommHandle* const> comms,
                                   const std::function<bool()>& calls_end) noexcept = 0;

  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory) noexcept = 0;
  /// All ranks call it with the same size, and it waits for them. Afterwards the network and other
  /// GPUs access the memory directly: in a symmetric window since NCCL 2.28 where the GPUs can,
  /// else since NCCL 2.19.
  [[nodiscard]] virtual Registration register_buffer(CommHandle comm, std::byte* memory,
                                                     std::size_t bytes) = 0;
  virtual void deregister_buffer(CommHandle comm, const Registration& registration) noexcept = 0;

  /// Calls between `group_start` and `group_end` form one operation on the stream.
  virtual void group_start() = 0;
  [[nodiscard]] virtual State group_end(CommHandle comm) = 0;

  // `count` is a number of elements: that of one rank's part if each rank has a part.
  virtual void all_reduce(const void* from, void* to, std::int64_t count, DType dtype, RedOp op,
                          CommHandle comm, StreamHandle stream) = 0;
  virtual void reduce_scatter(const void* from, void* to, std::int64_t count, DType dtype, RedOp op,
                              CommHandle comm, StreamHandle stream) = 0;

  // `bytes` is the size of one rank's part if each rank has a part.
  virtual void all_gather(const void* from, void* to, std::int64_t bytes, CommHandle comm,
                          StreamHandle stream) = 0;
  virtual void broadcast(const void* from, void* to, std::int64_t bytes, int root, CommHandle comm,
                         StreamHandle stream) = 0;
  virtual void send(const void* from, std::int64_t bytes, int peer, CommHandle comm,
                    StreamHandle stream) = 0;
  virtual void receive(void* to, std::int64_t bytes, int peer, CommHandle comm,
                       StreamHandle stream) = 0;
};

/// The version of NCCL for which Kolo was built, such as "2.28.9"; "" in a build without NCCL.
[[nodiscard]] std::string built_version();

/// Loads NCCL. Null in a build without NCCL. Throws BackendError with the reason if NCCL is missing
/// or its version is not supported.
[[nodiscard]] std::shared_ptr<Library> find_library();

}  // namespace kolo::internal::backend::nccl
