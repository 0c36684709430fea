// SPDX-License-Identifier: Apache-2.0
// Communicators of NCCL, from their creation to their end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/nccl/library.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "backend/gpu/runtime/handles.hpp"

namespace kolo::internal::backend::nccl {

/// A thread for calls that may block, which it makes one after another. Started by the first
/// `post`. Thread-safe.
class Worker {
 public:
  Worker();
  /// Leaves the thread behind unless it was stopped.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// `work` throws nothing, and owns all that it uses.
  void post(std::function<void()> work);

  /// Waits so long for posted calls. If one does not return, its thread is left behind, so that it
  /// does not keep the process from ending, and the result is false. The last call.
  [[nodiscard]] bool stop(std::chrono::nanoseconds patience);

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;
};

/// A communicator as the worker sees it. On the heap, because NCCL writes `handle` after the call
/// that makes it has returned.
struct CommState {
  /// Memory that all ranks have registered with the same size.
  struct Buffer {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    void* registration = nullptr;
  };

  std::atomic<bool> canceled{false};
  std::vector<Buffer> buffers{};  // the driver's until it asks the worker to abort
  CommHandle handle = nullptr;    // the worker's until it is made

  std::mutex mutex{};  // guards what follows; never held during a call of NCCL
  bool done = false;   // with the making
  std::string error{};
};

/// The communicators of a rank. They are aborted together: an NCCL kernel occupies its stream until
/// its communicator is aborted, so aborting one alone would wait for the kernels of the others.
/// For the driver.
class CommunicatorGroup {
 public:
  CommunicatorGroup(std::shared_ptr<Library> library, gpu::Gpu& gpu,
                    std::chrono::nanoseconds patience)
      : library_(std::move(library)), gpu_(gpu), patience_(patience) {}
  /// Waits for the workers. If one does not return, the GPU may be busy for good, and so would be
  /// every call that releases memory: all memory is leaked.
  ~CommunicatorGroup();
  CommunicatorGroup(const CommunicatorGroup&) = delete;
  CommunicatorGroup& operator=(const CommunicatorGroup&) = delete;

  [[nodiscard]] Library& library() const { return *library_; }
  [[nodiscard]] const std::shared_ptr<Library>& shared_library() const { return library_; }
  [[nodiscard]] gpu::Gpu& gpu() const { return gpu_; }

  /// A communicator that begins to be made, after those that it is made of.
  [[nodiscard]] std::shared_ptr<CommState> add();
  /// Calls `begin`, and waits until the communicator is made, failed or canceled. `parent` is the
  /// communicator that it is shrunk from, or null. Only `abort` ends what was begun.
  void make(std::shared_ptr<CommState> state, std::shared_ptr<CommState> parent, const char* call,
            std::chrono::nanoseconds timeout, std::function<State(Library&, CommState&)> begin);
  /// Destroys a communicator that is made and idle. All of its ranks do so in the same order.
  void destroy(const std::shared_ptr<CommState>& state);
  /// Ends all work in progress on all communicators, then releases their memory.
  void abort() noexcept;
  [[nodiscard]] bool aborted() const { return aborted_; }

 private:
  /// Calls `work(library)` with the GPU as the worker's device, if that is possible.
  template <typename Work>
  void post(Work work);
  template <typename Work>
  void post_to(Worker& worker, Work work);

  std::shared_ptr<Library> library_;
  gpu::Gpu& gpu_;
  std::chrono::nanoseconds patience_;
  std::vector<std::shared_ptr<CommState>> states_{};  // not destroyed; parents before children
  bool aborted_ = false;
  Worker worker_{};     // makes and aborts
  Worker destroyer_{};  // destroys
};

/// Made and destroyed by the workers; used by the driver in between. Every call ends by a deadline
/// or by an abort of the group.
class Communicator {
 public:
  /// `ranks` are of the world; `own` is the index of this rank. It is made after the first call of
  /// `ready`, within `timeout`.
  Communicator(CommunicatorGroup& group, std::vector<int> ranks, int own, const UniqueId& id,
               std::chrono::nanoseconds timeout);
  /// Of some of the parent's ranks, this rank included, as soon as nothing runs on the parent. The
  /// parent outlives it, and must not be used until it is ready. Every rank of the parent has begun
  /// to make the parent, or will.
  Communicator(CommunicatorGroup& group, Communicator& parent, std::vector<int> ranks,
               std::chrono::nanoseconds timeout);
  /// Destroys it, unless the group was aborted.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// False while it is being made, or its last call is in progress. Throws BackendError if that
  /// failed, on this or another rank, or if the group was aborted.
  [[nodiscard]] bool ready();
  [[nodiscard]] bool is_being_made() const { return state_ != nullptr && handle_ == nullptr; }

  /// The communicator that it was shrunk from, or null.
  [[nodiscard]] const Communicator* parent() const { return parent_; }

  /// Counts the executions that have launched work and are not done.
  void begin_use() { ++in_use_; }
  void end_use() { --in_use_; }
  [[nodiscard]] bool idle() const { return in_use_ == 0; }

  /// Destroys it while it is idle, if it was made. The next `ready` makes it again, of `parent`.
  void retire(Communicator& parent);

  void abort() noexcept { group_.abort(); }
  /// Throws BackendError if the group was aborted.
  void require_alive() const;

  [[nodiscard]] CommHandle handle() const { return handle_; }
  [[nodiscard]] Library& library() const { return group_.library(); }
  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }

  /// At least so many bytes, at the same offset of the same registration on all ranks if all ask
  /// for as many in the same order. All executions share one memory, since the stream does what
  /// they launch one after the other.
  [[nodiscard]] std::byte* buffer(std::size_t bytes);

 private:
  void begin_to_make();

  CommunicatorGroup& group_;
  std::vector<int> ranks_;
  int own_ = 0;
  UniqueId id_{};
  Communicator* parent_ = nullptr;
  std::chrono::nanoseconds timeout_;
  std::shared_ptr<CommState> state_{};  // once it begins to be made
  CommHandle handle_ = nullptr;         // once it is made
  int in_use_ = 0;
};

}  // namespace kolo::internal::backend::nccl
