// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/runtime/gpu.hpp"

#include <fmt/format.h>

#include <map>
#include <thread>

#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend::gpu {
namespace {

std::string to_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void check_versions(const Versions& versions) {
  if (versions.driver == 0)
    throw InvalidArgument("this machine has no CUDA driver, and so no GPU that can be used");
  // Within a major version, an older driver runs programs of a newer runtime.
  if (versions.driver / 1000 < versions.runtime / 1000)
    throw InvalidArgument(
        fmt::format("the CUDA driver is for CUDA {}, which is older than the CUDA {} that this "
                    "build of Kolo uses: update the driver, or build with an older CUDA",
                    to_text(versions.driver), to_text(versions.runtime)));
}

/// The stream that waits for all others but non-blocking ones, and that cannot be captured.
bool is_legacy(StreamHandle stream) {
  constexpr std::uintptr_t legacy = 1;  // cudaStreamLegacy
  return reinterpret_cast<std::uintptr_t>(stream) <= legacy;
}

}  // namespace

std::shared_ptr<const ReadyMark> Gpu::mark(Device device, StreamHandle stream, bool lasts) {
  const std::lock_guard lock(mutex_);
  if (index_ < 0) {
    open(device.index);
  } else if (index_ != device.index) {
    throw InvalidArgument(
        fmt::format("the tensor is on {}, but this rank's tensors were on {} before: a rank uses "
                    "one GPU; start a rank for each",
                    to_string(device), to_string(Device{DeviceType::cuda, index_})));
  }
  const DeviceGuard guard(*runtime_, index_);
  const bool captured = runtime_->is_capturing(stream);
  if (captured && is_legacy(stream))
    throw InvalidArgument(
        "the tensor is computed on the legacy default stream, of which CUDA forbids all use while "
        "a "
        "stream that waits for it is being captured into a graph");
  // The driver lets its own stream wait for this event, so that no thread waits for the tensor.
  Event event = events_->take();
  runtime_->record(event.get(), stream);
  return std::make_shared<const ReadyMark>(events_, std::move(event), runtime_->stream_id(stream),
                                           ++marks_, lasts ? std::optional(stream) : std::nullopt,
                                           captured);
}

void Gpu::open(int index) {
  const Versions versions = runtime_->versions();
  check_versions(versions);
  const int count = runtime_->device_count();
  if (index < 0 || index >= count)
    throw InvalidArgument(fmt::format(
        "there is no cuda:{} in this process, which sees {} GPU{} (CUDA_VISIBLE_DEVICES decides "
        "which)",
        index, count, count == 1 ? "" : "s"));
  const DeviceGuard guard(*runtime_, index);
  try {
    runtime_->check_kernels();
  } catch (const BackendError& error) {
    throw InvalidArgument(
        fmt::format("this build of Kolo has no code for cuda:{} ({}): build with its architecture "
                    "in CMAKE_CUDA_ARCHITECTURES ({})",
                    index, runtime_->properties(index).name, error.what()));
  }
  DeviceProperties properties = runtime_->properties(index);
  Stream stream = make_stream(runtime_);
  Stream graph_stream = make_stream(runtime_);
  Stream return_stream = make_stream(runtime_);
  // Members are set only after all checks, so that after a failure another device can be tried.
  versions_ = versions;
  properties_ = std::move(properties);
  stream_ = std::move(stream);
  graph_stream_ = std::move(graph_stream);
  return_stream_ = std::move(return_stream);
  index_ = index;
}

StreamHandle Gpu::stream_of(const std::vector<int>& ranks) {
  const auto found = stream_by_ranks_.find(ranks);
  if (found != stream_by_ranks_.end()) return found->second;
  const std::size_t place = stream_by_ranks_.size() % max_nccl_streams;
  if (place == nccl_streams_.size()) nccl_streams_.push_back(make_stream(runtime_));
  return stream_by_ranks_[ranks] = nccl_streams_[place].get();
}

std::vector<StreamHandle> Gpu::nccl_streams() const {
  std::vector<StreamHandle> streams;
  for (const Stream& stream : nccl_streams_) streams.push_back(stream.get());
  return streams;
}

void Gpu::finish(std::chrono::nanoseconds timeout) {
  const DeviceGuard guard(*runtime_, index_);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::vector<StreamHandle> streams = nccl_streams();
  streams.insert(streams.end(), {stream_.get(), return_stream_.get()});
  if (!runtime_->is_capturing(graph_stream_.get())) streams.push_back(graph_stream_.get());
  for (StreamHandle const stream : streams) {
    const Event done = make_event(runtime_);
    runtime_->record(done.get(), stream);
    while (!runtime_->is_done(done.get()) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
  }
}

void Gpu::await(std::span<const BatchTensor* const> tensors, StreamHandle stream) {
  // A stream works in order, so waiting for its last mark includes the earlier ones.
  std::map<std::uint64_t, const ReadyMark*> last;  // the last mark of each stream
  for (const BatchTensor* tensor : tensors) {
    if (tensor->ready == nullptr) continue;
    const ReadyMark*& mark = last[tensor->ready->stream()];
    if (mark == nullptr || mark->number() < tensor->ready->number()) mark = tensor->ready.get();
  }
  for (const auto& [from, mark] : last) runtime_->wait(stream, mark->event());
}

}  // namespace kolo::internal::backend::gpu
