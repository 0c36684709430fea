// SPDX-License-Identifier: Apache-2.0
// The captures and graphs of the CUDA double.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fake_cuda.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {

bool FakeCuda::captures() const {
  return std::ranges::any_of(streams_, [](const auto& s) { return s.second.graph != nullptr; });
}

void FakeCuda::pass_captures(const char* call) {
  const std::lock_guard lock(mutex_);
  if (captures() && modes_[std::this_thread::get_id()] != gpu::CaptureMode::relaxed)
    complain(fmt::format("{} invalidates a capture", call));
}

void FakeCuda::begin_capture(gpu::StreamHandle stream, gpu::CaptureMode mode) {
  const std::lock_guard lock(mutex_);
  streams_.at(id_of(stream)).graph = std::make_shared<FakeGraph>(id_of(stream), mode);
}

bool FakeCuda::captures_globally() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(streams_, [](const auto& s) {
    return s.second.graph != nullptr && s.second.graph->mode() == gpu::CaptureMode::global;
  });
}

std::shared_ptr<const FakeGraph> FakeCuda::end_capture(gpu::StreamHandle handle) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<FakeGraph> graph = streams_.at(id_of(handle)).graph;
  if (graph == nullptr || graph->origin() != id_of(handle)) {
    complain("a capture ends that this stream has not begun");
    return nullptr;
  }
  if (!graph->end()) complain("a capture ends with work for which its stream does not wait");
  for (auto& [id, stream] : streams_)
    if (stream.graph == graph) stream.graph = nullptr;
  return graph;
}

void FakeCuda::launch_graph(const FakeGraph& graph, gpu::StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  enqueue(stream, graph.replay(random_()));
}

void FakeCuda::require_uncaptured(const Event& event, const char* call) {
  if (event.graph == nullptr) return;
  complain(fmt::format("{} with an event that was recorded in a capture", call));
  throw BackendError(fmt::format("{} failed: the event was recorded in a capture", call));
}

bool FakeCuda::is_capturing(gpu::StreamHandle handle) {
  pass("cudaStreamIsCapturing");
  const std::lock_guard lock(mutex_);
  const Stream* const stream = find_stream(handle, "cudaStreamIsCapturing");
  return stream != nullptr && (stream->graph != nullptr || (handle == nullptr && captures()));
}

gpu::CaptureMode FakeCuda::exchange_capture_mode(gpu::CaptureMode mode) noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(modes_[std::this_thread::get_id()], mode);
}

}  // namespace kolo::internal::backend
