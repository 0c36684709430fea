// SPDX-License-Identifier: Apache-2.0
// The GPU that a rank uses.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/runtime/handles.hpp"
#include "backend/gpu/runtime/runtime.hpp"
#include "kolo/types.hpp"

namespace kolo::internal::backend::gpu {

/// The work on the submitter's stream after which a tensor's memory may be accessed.
class ReadyMark {
 public:
  ReadyMark(Event event, std::uint64_t stream, std::uint64_t number)
      : event_(std::move(event)), stream_(stream), number_(number) {}

  [[nodiscard]] EventHandle event() const { return event_.get(); }
  /// Its id.
  [[nodiscard]] std::uint64_t stream() const { return stream_; }
  /// Later marks on a stream have larger numbers.
  [[nodiscard]] std::uint64_t number() const { return number_; }

 private:
  Event event_;
  std::uint64_t stream_;
  std::uint64_t number_;
};

/// The device of the first tensor decides which. Nothing of CUDA is called before.
class Gpu {
 public:
  explicit Gpu(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

  /// `stream` is the one on which the tensor is computed. Throws InvalidArgument if this device
  /// cannot be used, or not beside another, or if the stream is being captured; BackendError if
  /// CUDA fails. Thread-safe.
  [[nodiscard]] std::shared_ptr<const ReadyMark> mark(Device device, StreamHandle stream);

  // The rest is for the driver, after the first mark, with the device as the current one.

  [[nodiscard]] const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] const DeviceProperties& properties() const { return properties_; }
  [[nodiscard]] Versions versions() const { return versions_; }
  /// For copies out of tensors, and for NCCL.
  [[nodiscard]] StreamHandle stream() const { return stream_.get(); }
  /// For copies back from the host, so that they need not wait for other tensors.
  [[nodiscard]] StreamHandle return_stream() const { return return_stream_.get(); }

  /// Waits until all that was launched is done, but no longer than `timeout`.
  void finish(std::chrono::nanoseconds timeout);

  /// Later work on `stream` waits until all tensors may be accessed.
  void await(std::span<const BatchTensor* const> tensors, StreamHandle stream);

  /// Instead of releasing its memory, which would wait for a GPU that is busy for good, and its
  /// streams, which a thread that is left behind may still use. The last call.
  void leak() {
    device_blocks_.leak();
    pinned_blocks_.leak();
    static_cast<void>(stream_.release());
    static_cast<void>(return_stream_.release());
  }

  [[nodiscard]] BlockPool<DeviceMemory>& device_blocks() { return device_blocks_; }
  [[nodiscard]] BlockPool<PinnedMemory>& pinned_blocks() { return pinned_blocks_; }

 private:
  void open(int index);

  std::shared_ptr<Runtime> runtime_;
  std::mutex mutex_;  // guards the members that `mark` changes
  int index_ = -1;
  std::uint64_t marks_ = 0;
  Versions versions_{};
  DeviceProperties properties_{};
  BlockPool<DeviceMemory> device_blocks_{runtime_, make_device_memory};
  BlockPool<PinnedMemory> pinned_blocks_{runtime_, make_pinned_memory};
  Stream stream_{};
  Stream return_stream_{};
};

/// Collects segments and launches the kernel once for all of them. Must live until the stream has
/// done the launch, or be abandoned.
class TransferLaunch {
 public:
  explicit TransferLaunch(Gpu& gpu) : gpu_(gpu) {}

  /// Empty segments are dropped.
  void add(const Segment& segment);
  /// Once. Nothing is launched if there is nothing to move.
  void launch(StreamHandle stream);
  /// The GPU may not be done.
  void abandon();

 private:
  Gpu& gpu_;
  std::vector<Segment> segments_{};
  BlockPool<PinnedMemory>::Block staged_{};
  BlockPool<DeviceMemory>::Block table_{};
};

}  // namespace kolo::internal::backend::gpu
