// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL, from its creation to its end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
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
  /// The destructor waits so long for posted calls; then it leaves the thread behind, so that a
  /// call that never returns does not keep the process from ending.
  explicit Worker(std::chrono::nanoseconds patience = std::chrono::seconds(10));
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// `work` throws nothing, and owns all that it uses.
  void post(std::function<void()> work);

 private:
  struct Shared;

  std::chrono::nanoseconds patience_;
  std::shared_ptr<Shared> shared_;
};

class Communicator;

/// Deregisters and releases memory, unless the communicator was aborted: then releases it only.
struct Deregister {
  Communicator* communicator = nullptr;
  void* registration = nullptr;

  void operator()(std::byte* memory) const noexcept;
};

/// Memory that all ranks of a communicator have registered with the same size.
using RegisteredMemory = std::unique_ptr<std::byte, Deregister>;

/// Created and destroyed by the worker; used by the driver in between. Every call ends by a
/// deadline or by `abort`.
class Communicator {
 public:
  using Buffer = gpu::BlockPool<RegisteredMemory>::Block;

  /// Begins to create it; `timeout` limits that. `ranks` are of the world; `own` is the index of
  /// this rank.
  Communicator(std::shared_ptr<Library> library, gpu::Gpu& gpu, Worker& worker,
               std::vector<int> ranks, int own, const UniqueId& id,
               std::chrono::nanoseconds timeout);
  /// Of some of the parent's ranks, this rank included. It is created after the first call of
  /// `ready`, as soon as nothing runs on the parent. The parent outlives it, and must not be used
  /// until it is ready.
  Communicator(Communicator& parent, std::vector<int> ranks, std::chrono::nanoseconds timeout);
  /// Destroys it by the worker, unless it was aborted.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// False while it is being created, or its last call is in progress. Throws BackendError if that
  /// failed, on this or another rank, or if it was aborted.
  [[nodiscard]] bool ready();

  /// Counts the executions that have launched work and are not done.
  void begin_use() { ++in_use_; }
  void end_use() { --in_use_; }

  /// Ends all work in progress, by the worker. `ready` throws from then on.
  void abort() noexcept;

  [[nodiscard]] bool aborted() const { return aborted_; }
  [[nodiscard]] CommHandle handle() const { return handle_; }
  [[nodiscard]] Library& library() const { return *library_; }
  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] Buffer take_buffer(std::size_t bytes) { return buffers_.take(bytes); }

 private:
  /// Shared with the worker.
  struct Making {
    std::atomic<bool> canceled{false};
    std::mutex mutex{};
    bool done = false;
    CommHandle handle = nullptr;
    std::string error{};
  };

  /// The handle, and the parent that must be ready too before the handle can be used. For the
  /// worker.
  struct Begun {
    CommHandle handle = nullptr;
    CommHandle parent = nullptr;
    State state = State::in_progress;
  };
  using Begin = std::function<void(Library& library, Begun& begun)>;

  Communicator(std::shared_ptr<Library> library, gpu::Gpu& gpu, Worker& worker,
               std::vector<int> ranks, std::chrono::nanoseconds timeout);
  void post(const char* call, Begin begin);
  static void make(Making& making, Library& library, const char* call,
                   std::chrono::nanoseconds timeout, const Begin& begin);
  void shrink_parent();
  [[nodiscard]] RegisteredMemory make_buffer(std::size_t bytes);

  std::shared_ptr<Library> library_;
  gpu::Gpu& gpu_;
  Worker& worker_;
  std::vector<int> ranks_;
  std::shared_ptr<Making> making_ = std::make_shared<Making>();
  CommHandle handle_ = nullptr;  // once it is created
  bool aborted_ = false;
  int in_use_ = 0;
  Communicator* parent_ = nullptr;  // until it is asked to shrink
  std::chrono::nanoseconds timeout_;
  gpu::BlockPool<RegisteredMemory> buffers_;
};

}  // namespace kolo::internal::backend::nccl
