// SPDX-License-Identifier: Apache-2.0
// Implements kolo/cuda.hpp.
#include "session/api/cuda_device.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "kolo/error.hpp"
#include "session/api/current.hpp"

namespace kolo {

using namespace internal;

using backend::gpu::CopyKind;
using backend::gpu::DeviceGuard;
using backend::gpu::Runtime;

namespace {

constexpr std::size_t max_at_once = 16 << 20;  // bytes of pinned memory for one copy

thread_local std::optional<CUstream_st*> current_stream;  // empty outside all scopes

std::atomic<int> warm_ups{0};

/// Written once, before the first GPU tensor of LibTorch.
std::atomic<CUstream_st* (*)(int device)> framework_stream{nullptr};

}  // namespace

CudaStreamScope::CudaStreamScope(CUstream_st* stream) noexcept
    : before_(std::exchange(current_stream, stream)) {}

CudaStreamScope::~CudaStreamScope() { current_stream = before_; }

CUstream_st* CudaStreamScope::current() noexcept { return current_stream.value_or(nullptr); }

// Relaxed: a thread that submits while another constructs the object may see either.
GraphWarmUp::GraphWarmUp() noexcept { warm_ups.fetch_add(1, std::memory_order_relaxed); }
GraphWarmUp::~GraphWarmUp() { warm_ups.fetch_sub(1, std::memory_order_relaxed); }
bool GraphWarmUp::any() noexcept { return warm_ups.load(std::memory_order_relaxed) > 0; }

detail::StreamInUse detail::stream_in_use(int device) {
  if (current_stream) return {*current_stream, *current_stream == nullptr};
  const auto of_framework = framework_stream.load(std::memory_order_relaxed);
  return {of_framework != nullptr ? of_framework(device) : nullptr, true};
}

void detail::set_framework_stream(CUstream_st* (*current)(int device)) noexcept {
  framework_stream.store(current, std::memory_order_relaxed);
}

void synchronize() {
  if (const auto engine = session::find_engine()) engine->synchronize();
}

CudaDevice::State::State(std::shared_ptr<Runtime> runtime, int index) : gpu(std::move(runtime)) {
  if (gpu.runtime() == nullptr) throw InvalidArgument("this build of Kolo is without CUDA");
  // Opens the GPU. The event itself is not needed.
  static_cast<void>(gpu.mark({DeviceType::cuda, index}, nullptr));
}

void CudaDevice::State::copy(std::byte* host, std::byte* device, std::size_t bytes, CopyKind kind) {
  const auto ready =
      gpu.mark({DeviceType::cuda, gpu.index()}, detail::stream_in_use(gpu.index()).handle);
  if (ready->captured())
    throw InvalidArgument(
        "the current stream is being captured into a CUDA graph, of which a copy by CudaDevice "
        "cannot be a part");
  const std::lock_guard lock(mutex);
  const DeviceGuard guard(*gpu.runtime(), gpu.index());
  gpu.runtime()->wait(gpu.stream(), ready->event());
  const auto pinned = gpu.pinned_blocks().take(std::min(bytes, max_at_once));
  const backend::gpu::Event done = backend::gpu::make_event(gpu.runtime());
  for (std::size_t place = 0; place < bytes; place += max_at_once) {
    const std::size_t piece = std::min(bytes - place, max_at_once);
    const bool leaves = kind == CopyKind::to_device;
    if (leaves) std::memcpy(pinned.data(), host + place, piece);
    void* const to = leaves ? device + place : pinned.data();
    const void* const from = leaves ? pinned.data() : device + place;
    gpu.runtime()->copy(to, from, piece, kind, gpu.stream());
    gpu.runtime()->record(done.get(), gpu.stream());
    while (!gpu.runtime()->is_done(done.get())) std::this_thread::yield();
    if (!leaves) std::memcpy(host + place, pinned.data(), piece);
  }
}

int CudaDevice::count() noexcept {
  try {
    const std::shared_ptr<Runtime> runtime = backend::gpu::find_runtime();
    if (runtime == nullptr || runtime->versions().driver == 0) return 0;
    return runtime->device_count();
  } catch (const std::exception&) {  // there is no usable CUDA driver
    return 0;
  }
}

CudaDevice::CudaDevice(int index)
    : state_(std::make_shared<State>(backend::gpu::find_runtime(), index)) {}

int CudaDevice::index() const { return state_->gpu.index(); }

std::shared_ptr<std::byte> CudaDevice::allocate(std::size_t bytes) const {
  const DeviceGuard guard(*state_->gpu.runtime(), index());
  const auto memory = std::make_shared<backend::gpu::DeviceMemory>(
      backend::gpu::make_device_memory(state_->gpu.runtime(), bytes == 0 ? 1 : bytes));
  return {memory, memory->get()};
}

void CudaDevice::copy_to_device(void* to, const void* from, std::size_t bytes) const {
  auto* const host = static_cast<std::byte*>(const_cast<void*>(from));
  state_->copy(host, static_cast<std::byte*>(to), bytes, CopyKind::to_device);
}

void CudaDevice::copy_to_host(void* to, const void* from, std::size_t bytes) const {
  auto* const device = static_cast<std::byte*>(const_cast<void*>(from));
  state_->copy(static_cast<std::byte*>(to), device, bytes, CopyKind::to_host);
}

}  // namespace kolo
