// SPDX-License-Identifier: Apache-2.0
// Communicators of NCCL, from creation to destruction.
#pragma once

#include <algorithm>
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
#include "backend/gpu/nccl/worker.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "backend/gpu/runtime/handles.hpp"

namespace kolo::internal::backend::nccl {

/// The part of a communicator that threads other than the driver's access. It lies on the heap,
/// because NCCL writes the handles after the creating calls have returned.
struct CommState {
  /// Memory that all ranks have registered, with the same size.
  struct Buffer {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    Registration registration{};
  };

  std::atomic<bool> canceled{false};
  std::vector<Buffer> buffers{};  // accessed by launches until they have ended, then by the worker
  // Accessed by the worker until the communicator exists:
  /// From which others are derived. Its calls do not block, so that creation ends by a deadline.
  /// Null if it is another's, or NCCL cannot derive.
  CommHandle root = nullptr;
  CommHandle handle = nullptr;  // for collectives
  /// A graph that the program has captured may use the buffers after an abort.
  bool keeps_buffers = false;

  std::mutex mutex{};  // guards the members below; never held during a call of NCCL
  bool done = false;   // creation has ended
  std::string error{};
};

/// The communicators of a rank. They are aborted together: an NCCL kernel occupies its stream until
/// its communicator is aborted, so aborting only one would wait for the kernels of the others. Only
/// the driver calls it.
class CommunicatorGroup {
 public:
  CommunicatorGroup(std::shared_ptr<Library> library, gpu::Gpu& gpu,
                    std::chrono::nanoseconds patience)
      : library_(std::move(library)), gpu_(gpu), patience_(patience) {}
  /// Waits for the workers. If one does not return, the GPU may be busy forever, and every call
  /// that releases memory would wait for it: all memory is leaked instead.
  ~CommunicatorGroup();
  CommunicatorGroup(const CommunicatorGroup&) = delete;
  CommunicatorGroup& operator=(const CommunicatorGroup&) = delete;

  [[nodiscard]] Library& library() const { return *library_; }
  [[nodiscard]] const std::shared_ptr<Library>& shared_library() const { return library_; }
  [[nodiscard]] gpu::Gpu& gpu() const { return gpu_; }

  /// Adds a communicator that is about to be created, after the communicators that it derives from.
  [[nodiscard]] std::shared_ptr<CommState> add();
  /// Calls `make_all(library, state)`, which returns why it has failed.
  void make(std::shared_ptr<CommState> state,
            std::function<std::string(Library&, CommState&)> make_all);
  /// Calls `work` in the launching thread, one after another, with the GPU as its device. It must
  /// not throw.
  void launch(std::function<void()> work);
  /// Waits for the launching thread. False if it does not return; it may then use the communicators
  /// for ever.
  [[nodiscard]] bool stop_launching() { return launcher_.stop(patience_left()); }
  /// Destroys an idle communicator. All its ranks destroy communicators in the same order.
  void destroy(const std::shared_ptr<CommState>& state);
  /// Ends all work in progress on all communicators, then releases their memory.
  void abort() noexcept;
  [[nodiscard]] bool aborted() const { return *aborted_; }
  /// Outlives the group: for a launch that does not return.
  [[nodiscard]] std::shared_ptr<const std::atomic<bool>> aborted_flag() const { return aborted_; }
  /// The time to wait for calls that do not return: less and less after an abort.
  [[nodiscard]] std::chrono::nanoseconds patience_left() const {
    if (!aborted()) return patience_;
    return std::max(patience_ - (std::chrono::steady_clock::now() - aborted_at_), no_time);
  }

 private:
  /// Calls `work(library)` with the GPU as the worker's device, if it can be set.
  template <typename Work>
  void post(Work work);
  template <typename Work>
  void post_to(Worker& worker, Work work);

  std::shared_ptr<Library> library_;
  gpu::Gpu& gpu_;
  std::chrono::nanoseconds patience_;
  std::vector<std::shared_ptr<CommState>> states_{};  // not destroyed; parents before children
  std::shared_ptr<std::atomic<bool>> aborted_ = std::make_shared<std::atomic<bool>>(false);
  static constexpr std::chrono::nanoseconds no_time{0};
  std::chrono::steady_clock::time_point aborted_at_{};
  Worker worker_{};     // creates and aborts
  Worker launcher_{};   // makes the calls that wait for other ranks when these come late
  Worker destroyer_{};  // destroys
};

/// A communicator of NCCL. The workers create and destroy it, and launches use it in between. Every
/// call ends by a deadline or by an abort of the group.
class Communicator {
 public:
  /// `ranks` are ranks of the world; `own` is the index of this rank among them. Creation begins
  /// with the first call of `ready` and fails after `timeout`.
  Communicator(CommunicatorGroup& group, std::vector<int> ranks, int own, const UniqueId& id,
               std::chrono::nanoseconds timeout);
  /// A communicator of some or all of the parent's ranks, including this rank. The parent outlives
  /// it. Every rank of the parent creates the parent too, sooner or later.
  Communicator(CommunicatorGroup& group, Communicator& parent, std::vector<int> ranks,
               std::chrono::nanoseconds timeout);
  /// Destroys the communicator unless the group was aborted.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// False during creation. Throws BackendError if that or a later call has failed, on this or
  /// another rank, or if the group was aborted.
  [[nodiscard]] bool ready();
  [[nodiscard]] bool is_being_made() const { return state_ != nullptr && handle_ == nullptr; }

  /// The communicator from which this one is derived, or null.
  [[nodiscard]] const Communicator* parent() const { return parent_; }

  /// Counts executions that have launched work and are not done.
  void begin_use() { ++in_use_; }
  void end_use() { --in_use_; }
  [[nodiscard]] bool idle() const { return in_use_ == 0; }

  /// Destroys the communicator, which is idle, if it exists. The next `ready` derives it from
  /// `parent`.
  void retire(Communicator& parent);

  void abort() noexcept { group_.abort(); }
  /// Throws BackendError if the group was aborted.
  void require_alive() const;

  [[nodiscard]] CommunicatorGroup& group() const { return group_; }
  [[nodiscard]] CommHandle handle() const { return handle_; }
  [[nodiscard]] Library& library() const { return group_.library(); }
  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }

  /// At least `bytes` of memory, at the same offset of the same registration on all ranks, provided
  /// that all ranks request the same sizes in the same order. All launches share this memory, since
  /// the stream runs them one after the other. Only launches call it.
  [[nodiscard]] std::byte* buffer(std::size_t bytes);

 private:
  void begin_to_make();

  CommunicatorGroup& group_;
  std::vector<int> ranks_;
  int own_ = 0;
  UniqueId id_{};
  Communicator* parent_ = nullptr;
  std::chrono::nanoseconds timeout_;
  std::shared_ptr<CommState> state_{};  // null until creation begins
  CommHandle handle_ = nullptr;         // null until creation has ended
  int in_use_ = 0;
};

}  // namespace kolo::internal::backend::nccl
