// SPDX-License-Identifier: Apache-2.0
// The interface to NCCL, so that tests can replace it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/gpu/runtime/gpu_info.hpp"
#include "backend/gpu/runtime/runtime.hpp"
#include "kolo/types.hpp"

struct ncclComm;

namespace kolo::internal::backend::nccl {

using CommHandle = ncclComm*;  // ncclComm_t
using gpu::StreamHandle;
using gpu::UniqueId;

/// A call that returns `in_progress` is in progress until `state` returns `ready`. Until then the
/// communicator may only be aborted.
enum class State : std::uint8_t { ready, in_progress };

/// As ncclRedOp_t. Averages are left out: NVLink SHARP has sums only.
enum class RedOp : std::int32_t { sum = 0, product = 1, max = 2, min = 3 };

/// Memory is the current device's. Every function throws BackendError, with the name of the call
/// that failed and NCCL's reasons, unless it is noexcept. Calls on one communicator are made by one
/// thread at a time.
class Library {
 public:
  virtual ~Library() = default;

  /// As NCCL spells it: 22809 is 2.28.9.
  [[nodiscard]] virtual int version() = 0;
  /// False before NCCL 2.27: `shrink` is not called. The same in all libraries of a version.
  [[nodiscard]] virtual bool can_shrink() { return true; }
  /// True if the user lets ranks share a GPU: NCCL_MULTI_RANK_GPU_ENABLE is 1, with NCCL 2.30 or
  /// later.
  [[nodiscard]] virtual bool allows_shared_gpus() { return false; }
  [[nodiscard]] virtual UniqueId make_unique_id() = 0;

  /// Non-blocking, but may be slow. It may set `comm` even if it throws: then `comm` must be
  /// aborted.
  [[nodiscard]] virtual State init(CommHandle& comm, int size, const UniqueId& id, int rank) = 0;
  /// Begins to make a communicator of the parent's ranks without the excluded ones, which do not
  /// call. The call returns no state, because NCCL 2.30 reports success while the child is still
  /// being made: the child exists once the parent is ready and `comm` is not null. NCCL may write
  /// `comm` until then, or until the parent is aborted, so `comm` must stay where it is. Nothing
  /// else may be in progress on the parent.
  virtual void shrink(CommHandle& comm, CommHandle parent, std::span<const int> excluded) = 0;
  /// Of the last call. Throws if something failed since, on this or another rank.
  [[nodiscard]] virtual State state(CommHandle comm) = 0;
  /// When all work is done. May be slow.
  virtual void destroy(CommHandle comm) noexcept = 0;
  /// Ends all work in progress on these communicators, in one group, in this order. A handle is
  /// read at its turn, and skipped if it is null: the abort of a parent may write that of its
  /// child. Slow: it waits for the stream.
  virtual void abort(std::span<const CommHandle* const> comms) noexcept = 0;

  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory) noexcept = 0;
  /// All ranks call it with the same size. The network and other GPUs then access the memory
  /// directly. Null before NCCL 2.19, which cannot register memory.
  [[nodiscard]] virtual void* register_buffer(CommHandle comm, std::byte* memory,
                                              std::size_t bytes) = 0;
  virtual void deregister_buffer(CommHandle comm, void* registration) noexcept = 0;

  /// The calls between the two are one operation on the stream.
  virtual void group_start() = 0;
  [[nodiscard]] virtual State group_end(CommHandle comm) = 0;

  // Counts are of elements, for each rank where ranks have parts.
  virtual void all_reduce(const void* from, void* to, std::int64_t count, DType dtype, RedOp op,
                          CommHandle comm, StreamHandle stream) = 0;
  virtual void reduce_scatter(const void* from, void* to, std::int64_t count, DType dtype, RedOp op,
                              CommHandle comm, StreamHandle stream) = 0;

  // Counts are of bytes.
  virtual void all_gather(const void* from, void* to, std::int64_t bytes, CommHandle comm,
                          StreamHandle stream) = 0;
  virtual void broadcast(const void* from, void* to, std::int64_t bytes, int root, CommHandle comm,
                         StreamHandle stream) = 0;
  virtual void send(const void* from, std::int64_t bytes, int peer, CommHandle comm,
                    StreamHandle stream) = 0;
  virtual void receive(void* to, std::int64_t bytes, int peer, CommHandle comm,
                       StreamHandle stream) = 0;
};

/// Of the NCCL that this is built with, "2.28.9"; "" without.
[[nodiscard]] std::string built_version();

/// Loads NCCL; null in a build without it. Throws BackendError, with the reason, if it is missing
/// or its version does not fit.
[[nodiscard]] std::shared_ptr<Library> find_library();

}  // namespace kolo::internal::backend::nccl
