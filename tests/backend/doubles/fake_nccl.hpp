// SPDX-License-Identifier: Apache-2.0
// An NCCL double among ranks of one process or of several. Checks that all ranks make the same
// calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/nccl/library.hpp"
#include "fake_cuda.hpp"
#include "fake_nccl_world.hpp"

namespace kolo::internal::backend {

/// The double of one rank, as strict as NCCL. The handle of a communicator that is being derived is
/// null until the parent is ready, and is then written through the caller's pointer. The first
/// group of a communicator whose calls block waits for the other ranks' first group, unless an
/// abort ends the wait; an abort frees what such a call uses. An abort waits for kernels, and hangs
/// on kernels of a communicator that is not aborted too. Destroying a communicator waits for its
/// other ranks to destroy it, or to be lost. Ranks must register memory in the same order and use
/// the same places in it. A communicator is made by threads of NCCL's own, which do not inherit the
/// caller's capture mode: it fails while a capture forbids their calls.
class FakeNccl : public nccl::Library {
 public:
  FakeNccl(std::shared_ptr<FakeNcclWorld> world, std::shared_ptr<FakeCuda> cuda)
      : shared_world_(std::move(world)), world_(*shared_world_), cuda_(std::move(cuda)) {}

  /// The number of polls until a communicator is ready, or its parent during a shrink; negative:
  /// never ready.
  int looks_at_init = 3;
  /// The parent of a communicator that is shrunk reports itself ready this many times before the
  /// child's handle is written.
  int looks_without_child = 1;
  /// While true, calls of `abort` do nothing and do not return.
  std::atomic<bool> holds_aborts = false;
  /// The same for calls that wait for other ranks, even after an abort.
  std::atomic<bool> holds_calls = false;
  /// The same for calls of `make_unique_id`.
  std::atomic<bool> holds_ids = false;
  /// The number of polls until a group of a communicator whose calls do not block is ready;
  /// negative: never ready. If negative, calls that block never return, either.
  int looks_at_group = 1;
  int reported_version = 22809;
  /// If true, then after a rank has aborted, `state` throws on the others, and their `abort` does
  /// not wait for other ranks. NCCL promises neither, nor that the kernels of other ranks end.
  bool notices_aborts = true;
  /// Makes `state` throw this error from now on.
  void fail_later(const std::string& error);

  [[nodiscard]] int communicators() const;  // live ones, without those that were split from them
  [[nodiscard]] bool any() const;           // any live communicator
  [[nodiscard]] int inits() const;
  [[nodiscard]] int shrinks() const;
  [[nodiscard]] int aborts() const;
  [[nodiscard]] std::size_t peak_bytes() const;  // peak of the memory that NCCL allocated
  [[nodiscard]] std::vector<std::string> calls() const;
  [[nodiscard]] bool is_inside_a_call() const;  // that waits for other ranks

  int version() override;
  nccl::UniqueId make_unique_id() override;
  nccl::State init(nccl::CommHandle& comm, int size, const nccl::UniqueId& id, int rank) override;
  void shrink(nccl::CommHandle& comm, nccl::CommHandle parent,
              std::span<const int> excluded) override;
  void split(nccl::CommHandle& comm, nccl::CommHandle parent) override;
  nccl::State state(nccl::CommHandle comm) override;
  void destroy(nccl::CommHandle comm) noexcept override;
  bool abort(std::span<const nccl::CommHandle* const> comms,
             const std::function<bool()>& calls_end) noexcept override;
  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* memory) noexcept override;
  nccl::Registration register_buffer(nccl::CommHandle comm, std::byte* memory,
                                     std::size_t bytes) override;
  void deregister_buffer(nccl::CommHandle comm,
                         const nccl::Registration& registration) noexcept override;
  void group_start() override;
  nccl::State group_end(nccl::CommHandle comm) override;
  void all_reduce(const void* from, void* to, std::int64_t count, DType dtype, nccl::RedOp op,
                  nccl::CommHandle comm, nccl::StreamHandle stream) override;
  void reduce_scatter(const void* from, void* to, std::int64_t count, DType dtype, nccl::RedOp op,
                      nccl::CommHandle comm, nccl::StreamHandle stream) override;
  void all_gather(const void* from, void* to, std::int64_t bytes, nccl::CommHandle comm,
                  nccl::StreamHandle stream) override;
  void broadcast(const void* from, void* to, std::int64_t bytes, int root, nccl::CommHandle comm,
                 nccl::StreamHandle stream) override;
  void send(const void* from, std::int64_t bytes, int peer, nccl::CommHandle comm,
            nccl::StreamHandle stream) override;
  void receive(void* to, std::int64_t bytes, int peer, nccl::CommHandle comm,
               nccl::StreamHandle stream) override;

 private:
  /// A communicator derived from another.
  struct Child {
    nccl::CommHandle* handle = nullptr;  // the caller's handle
    NcclClique* clique = nullptr;
    int size = 0;
    int rank = 0;
    int looks_left = 0;  // polls of the ready parent before the handle is written
    bool blocks = false;
  };
  struct Comm {
    NcclClique* clique = nullptr;
    int rank = 0;
    int looks_left = 0;
    bool made = false;
    bool blocks = false;     // its calls do; made by `split`
    bool connected = false;  // has called a collective
    bool is_inside = false;  // a call waits for other ranks
    /// Collectives begun on the GPU, where each replay of a graph begins them again.
    std::shared_ptr<std::uint64_t> collectives = std::make_shared<std::uint64_t>(0);
    std::map<int, std::uint64_t> sends{};                                // by peer
    std::map<int, std::uint64_t> receives{};                             // by peer
    std::shared_ptr<int> under_way = std::make_shared<int>(0);           // groups in progress
    std::map<std::vector<int>, int> shrinks{};                           // by excluded ranks
    std::vector<std::pair<const std::byte*, std::size_t>> registered{};  // in order of registration
    std::vector<const void*> deregistered{};
    /// Children whose handles are written when this communicator is ready or aborted.
    std::vector<Child> children{};
    std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
    std::vector<FakeCuda::Work> launching{};  // groups that are not in the stream yet
    nccl::StreamHandle stream = nullptr;
  };

  using Lock = std::scoped_lock<std::recursive_mutex, SharedMutex>;

  [[nodiscard]] Lock lock() const { return Lock(cuda_->mutex(), world_.mutex()); }
  void write(nccl::CommHandle& comm, NcclClique& clique, int rank, int looks, bool blocks);
  void begin_child(nccl::CommHandle& comm, Comm& parent, const std::vector<int>& excluded,
                   bool blocks);
  void meet(nccl::CommHandle handle, int NcclClique::*calls, int before);
  void write_children(Comm& parent, int looks);
  [[nodiscard]] static bool children_have_joined(const Comm& comm);
  [[nodiscard]] static std::string place_of(const Comm& comm, const void* memory);
  [[nodiscard]] static std::string places_of(const Comm& comm, const NcclCollective& collective);
  /// Tells the kernels to end. Returns false if the communicator has ended.
  bool begin_to_abort(nccl::CommHandle handle, std::vector<std::shared_ptr<int>>& under_way);
  void wait_for_kernels(const std::vector<std::shared_ptr<int>>& under_way);
  /// Returns null if the communicator has ended.
  [[nodiscard]] const NcclClique* begin_to_destroy(nccl::CommHandle handle);
  static void leave_others(const Comm& comm);
  void wait_for_others(const NcclClique& clique, const char* call);
  /// Releases a communicator without kernels.
  void end(nccl::CommHandle handle);
  [[nodiscard]] Comm& find(nccl::CommHandle handle, const char* call, bool idle = true);
  void add_collective(const char* function, const NcclCollective& collective, nccl::CommHandle comm,
                      nccl::StreamHandle stream);
  void add(FakeCuda::Work work, Comm& comm, nccl::StreamHandle stream);

  std::shared_ptr<FakeNcclWorld> shared_world_;
  FakeNcclWorld& world_;
  std::shared_ptr<FakeCuda> cuda_;
  std::map<nccl::CommHandle, Comm> comms_{};
  std::uintptr_t next_ = 1;
  int inits_ = 0;
  int shrinks_ = 0;
  int aborts_ = 0;
  bool grouping_ = false;
  bool call_failed_ = false;
  std::vector<FakeCuda::Work> group_{};
  std::map<const std::byte*, std::size_t> memory_{};  // memory from `allocate`
  std::size_t peak_bytes_ = 0;                        // peak of this memory
  std::string error_{};
  std::vector<std::string> calls_{};
};

}  // namespace kolo::internal::backend
