// SPDX-License-Identifier: Apache-2.0
#include "fake_cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "backend/gpu/runtime/transfer_element.hpp"
#include "base/elements.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

template <typename Handle>
std::uintptr_t number_of(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

/// One element after the other, as the kernel's threads together.
struct TransferAll {
  const gpu::Segment& segment;

  template <typename From, typename To>
  void operator()() const {
    const gpu::TransferElement<From, To> element(segment.scaling);
    for (std::int64_t i = 0; i < segment.elements; ++i)
      store<To>(segment.to, i, element(load<From>(segment.from, i)));
  }
};

std::size_t bytes_on(const gpu::Segment& segment, DType type) {
  return static_cast<std::size_t>(segment.elements * signed_size_of(type));
}

}  // namespace

void transfer_on_host(const gpu::Segment& segment) {
  if (gpu::is_copy(segment)) {
    std::memmove(segment.to, segment.from,
                 static_cast<std::size_t>(segment.elements * signed_size_of(segment.from_type)));
  } else {
    const TransferAll all{segment};
    gpu::visit_types(segment.from_type, segment.to_type, all);
  }
}

void Faults::pass(const std::string& call) {
  const std::lock_guard lock(mutex_);
  ++counts_[call];
  const auto found = planned_.find(call);
  if (found == planned_.end() || found->second-- > 0) return;
  planned_.erase(found);
  throw BackendError(call + " failed: as planned");
}

FakeCuda::FakeCuda(std::vector<int> gpus, std::uint64_t seed)
    : gpus_(std::move(gpus)), random_(seed) {
  streams_[0] = {0};
  ids_[nullptr] = 0;
}

FakeCuda::~FakeCuda() = default;

void FakeCuda::complain(const std::string& text) {
  const std::lock_guard lock(mutex_);
  complaints_.push_back(text);
}

std::vector<std::string> FakeCuda::complaints() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all = complaints_;
  if (ids_.size() > 1) all.push_back(fmt::format("{} streams are left", ids_.size() - 1));
  if (!events_.empty()) all.push_back(fmt::format("{} events are left", events_.size()));
  const std::size_t left = memory_.size() - freed_.size();
  if (left > 0) all.push_back(fmt::format("{} pieces of memory are left", left));
  return all;
}

void FakeCuda::advance() {
  const std::lock_guard lock(mutex_);
  std::vector<Number> busy;
  for (const auto& [number, stream] : streams_)
    if (!stream.work.empty()) busy.push_back(number);
  if (busy.empty()) return;
  const Number chosen = busy[random_() % busy.size()];
  Stream& stream = streams_[chosen];
  if (stream.work.front()()) stream.work.pop_front();
  if (stream.destroyed && stream.work.empty()) streams_.erase(chosen);
  if (!is_busy())
    for (std::byte* memory : std::exchange(freed_, {})) give_back(memory, false);
}

bool FakeCuda::is_busy() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(streams_, [](const auto& s) { return !s.second.work.empty(); });
}

void FakeCuda::wait_until_idle(const char* call) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (is_busy()) {
    if (std::chrono::steady_clock::now() > deadline)
      return complain(fmt::format("{} waits for ever", call));
    advance();
  }
}

void FakeCuda::synchronize(gpu::StreamHandle /*stream*/) {
  faults.pass("cudaStreamSynchronize");
  wait_until_idle("cudaStreamSynchronize");
}

bool FakeCuda::captures() const {
  return std::ranges::any_of(streams_, [](const auto& s) { return s.second.capturing; });
}

void FakeCuda::pass_captures(const char* call) {
  const std::lock_guard lock(mutex_);
  if (captures() && modes_[std::this_thread::get_id()] != gpu::CaptureMode::relaxed)
    complain(fmt::format("{} invalidates a capture", call));
}

void FakeCuda::begin_capture(gpu::StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  streams_.at(id_of(stream)).capturing = true;
}

void FakeCuda::end_capture(gpu::StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  streams_.at(id_of(stream)).capturing = false;
}

gpu::StreamHandle FakeCuda::per_thread_stream() {
  return reinterpret_cast<gpu::StreamHandle>(std::uintptr_t{2});
}

FakeCuda::Number FakeCuda::id_of(gpu::StreamHandle handle) {
  if (handle == per_thread_stream()) {
    const auto [found, is_new] = per_thread_.try_emplace(std::this_thread::get_id(), next_);
    if (is_new) streams_[next_++] = {current_device()};
    return found->second;
  }
  const auto found = ids_.find(handle);
  return found == ids_.end() ? ~Number{0} : found->second;
}

std::uint64_t FakeCuda::stream_id(gpu::StreamHandle stream) {
  faults.pass("cudaStreamGetId");
  const std::lock_guard lock(mutex_);
  return id_of(stream);
}

bool FakeCuda::is_capturing(gpu::StreamHandle handle) {
  faults.pass("cudaStreamIsCapturing");
  const std::lock_guard lock(mutex_);
  const Stream* const stream = find_stream(handle, "cudaStreamIsCapturing");
  return stream != nullptr && (stream->capturing || (handle == nullptr && captures()));
}

gpu::CaptureMode FakeCuda::exchange_capture_mode(gpu::CaptureMode mode) noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(modes_[std::this_thread::get_id()], mode);
}

void FakeCuda::enqueue(gpu::StreamHandle handle, Work work) {
  const std::lock_guard lock(mutex_);
  Stream* const stream = find_stream(handle, "enqueue");
  if (stream == nullptr) return;
  if (stream->capturing || (handle == nullptr && captures()))
    complain("work is given to a stream that is captured");
  stream->work.push_back(std::move(work));
}

FakeCuda::Stream* FakeCuda::find_stream(gpu::StreamHandle handle, const char* call) {
  const auto found = streams_.find(id_of(handle));
  if (found == streams_.end()) {
    complain(fmt::format("{} with a stream that does not exist", call));
    return nullptr;
  }
  if (handle != nullptr && found->second.device != current_device())
    complain(fmt::format("{} with a stream of device {}, but device {} is the current one", call,
                         found->second.device, current_device()));
  return &found->second;
}

FakeCuda::Event* FakeCuda::find_event(gpu::EventHandle handle, const char* call) {
  const auto found = events_.find(number_of(handle));
  if (found != events_.end()) return &found->second;
  complain(fmt::format("{} with an event that does not exist", call));
  return nullptr;
}

void FakeCuda::check_memory(const void* begin, std::size_t bytes, const char* what) {
  if (bytes > 0 && !is_memory(begin, bytes))
    complain(fmt::format("{} touches memory that is none of the device's", what));
}

bool FakeCuda::is_memory(const void* begin, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto* const first = static_cast<const std::byte*>(begin);
  auto after = memory_.upper_bound(first);
  if (after == memory_.begin()) return false;
  const auto& [start, memory] = *std::prev(after);
  return first + bytes <= start + memory.size;
}

std::byte* FakeCuda::take(std::size_t bytes, bool pinned) {
  const std::lock_guard lock(mutex_);
  auto made = std::make_unique<std::byte[]>(bytes);
  std::memset(made.get(), 0x5a, bytes);
  std::byte* const address = made.get();
  memory_[address] = {std::move(made), bytes, pinned};
  return address;
}

void FakeCuda::give_back(std::byte* memory, bool pinned) {
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(memory);
  if (found == memory_.end()) return complain("memory is released that was not given");
  if (found->second.pinned != pinned) complain("memory is released as if of the other kind");
  memory_.erase(found);
}

std::byte* FakeCuda::make_memory(std::size_t bytes) { return take(bytes, false); }

void FakeCuda::free_memory(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  if (is_busy()) return freed_.push_back(memory);
  give_back(memory, false);
}

gpu::Versions FakeCuda::versions() {
  faults.pass("cudaDriverGetVersion");
  return reported;
}

int FakeCuda::device_count() {
  faults.pass("cudaGetDeviceCount");
  return static_cast<int>(gpus_.size());
}

gpu::DeviceProperties FakeCuda::properties(int device) {
  faults.pass("cudaGetDeviceProperties");
  const int gpu = gpus_.at(static_cast<std::size_t>(device));
  gpu::DeviceProperties properties{"Fake", fmt::format("0000:{:02x}:00.0", gpu)};
  properties.uuid.front() = static_cast<char>(gpu + 1);
  return properties;
}

void FakeCuda::check_kernels() {
  faults.pass("cudaFuncGetAttributes");
  if (!has_kernels) throw BackendError("cudaFuncGetAttributes failed: no kernel image");
}

int FakeCuda::current_device() {
  const std::lock_guard lock(mutex_);
  return current_[std::this_thread::get_id()];
}

void FakeCuda::use_device(int device) {
  faults.pass("cudaSetDevice");
  const std::lock_guard lock(mutex_);
  if (device < 0 || device >= device_count()) complain("cudaSetDevice with a device not there");
  used_.insert(device);
  current_[std::this_thread::get_id()] = device;
}

bool FakeCuda::is_in_use(int device) {
  const std::lock_guard lock(mutex_);
  return used_.contains(device);
}

gpu::StreamHandle FakeCuda::create_stream() {
  faults.pass("cudaStreamCreateWithPriority");
  const std::lock_guard lock(mutex_);
  streams_[next_] = {current_device()};
  auto handle = reinterpret_cast<gpu::StreamHandle>(next_);
  if (!unused_handles_.empty()) {
    handle = unused_handles_.back();
    unused_handles_.pop_back();
  }
  ids_[handle] = next_++;
  return handle;
}

void FakeCuda::destroy_stream(gpu::StreamHandle stream) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = ids_.find(stream);
  if (found == ids_.end()) return complain("a stream is destroyed twice");
  Stream& ended = streams_.at(found->second);
  ended.destroyed = true;
  if (ended.work.empty()) streams_.erase(found->second);
  ids_.erase(found);
  unused_handles_.push_back(stream);
}

gpu::EventHandle FakeCuda::create_event() {
  faults.pass("cudaEventCreateWithFlags");
  const std::lock_guard lock(mutex_);
  events_[next_];
  return reinterpret_cast<gpu::EventHandle>(next_++);
}

void FakeCuda::destroy_event(gpu::EventHandle event) noexcept {
  const std::lock_guard lock(mutex_);
  if (events_.erase(number_of(event)) == 0) complain("an event is destroyed twice");
}

void FakeCuda::record(gpu::EventHandle handle, gpu::StreamHandle stream) {
  faults.pass("cudaEventRecord");
  const std::lock_guard lock(mutex_);
  Event* const event = find_event(handle, "cudaEventRecord");
  if (event == nullptr) return;
  enqueue(stream, [reached = event->reached, value = ++event->recorded] {
    *reached = value;
    return true;
  });
}

void FakeCuda::wait(gpu::StreamHandle stream, gpu::EventHandle handle) {
  faults.pass("cudaStreamWaitEvent");
  const std::lock_guard lock(mutex_);
  const Event* const event = find_event(handle, "cudaStreamWaitEvent");
  if (event == nullptr) return;
  if (event->recorded == 0) complain("a stream waits for an event that was not recorded");
  enqueue(stream,
          [reached = event->reached, value = event->recorded] { return *reached >= value; });
}

bool FakeCuda::is_done(gpu::EventHandle handle) {
  faults.pass("cudaEventQuery");
  pass_captures("cudaEventQuery");
  const std::lock_guard lock(mutex_);
  advance();
  const Event* const event = find_event(handle, "cudaEventQuery");
  return event != nullptr && *event->reached >= event->recorded;
}

std::byte* FakeCuda::allocate(std::size_t bytes) {
  faults.pass("cudaMalloc");
  pass_captures("cudaMalloc");
  return take(bytes, false);
}
void FakeCuda::release(std::byte* memory) noexcept {
  wait_until_idle("cudaFree");
  give_back(memory, false);
}

std::byte* FakeCuda::allocate_pinned(std::size_t bytes) {
  faults.pass("cudaHostAlloc");
  pass_captures("cudaHostAlloc");
  return take(bytes, true);
}
void FakeCuda::release_pinned(std::byte* memory) noexcept {
  wait_until_idle("cudaFreeHost");
  give_back(memory, true);
}

void FakeCuda::copy(void* to, const void* from, std::size_t bytes, gpu::CopyKind kind,
                    gpu::StreamHandle stream) {
  faults.pass("cudaMemcpyAsync");
  const int number = kind == gpu::CopyKind::to_host ? copies_to_host_++ : -1;
  enqueue(stream, [=, this] {
    if (number >= max_copies_to_host) return false;
    check_memory(from, bytes, "a copy's source");
    check_memory(to, bytes, "a copy's target");
    std::memcpy(to, from, bytes);
    return true;
  });
}

void FakeCuda::launch(const gpu::TransferTable& table, gpu::StreamHandle stream) {
  faults.pass("the launch of the transfer kernel");
  ++launches_;
  if (table.tiles < 1) complain("a launch without a tile");
  enqueue(stream, [=, this] {
    const auto count = static_cast<std::size_t>(table.count);
    check_memory(table.segments, count * sizeof(gpu::Segment), "a launch's table");
    for (std::size_t i = 0; i < count; ++i) {
      const gpu::Segment& segment = table.segments[i];
      check_memory(segment.from, bytes_on(segment, segment.from_type), "a segment's source");
      check_memory(segment.to, bytes_on(segment, segment.to_type), "a segment's target");
      transfer_on_host(segment);
    }
    return true;
  });
}

}  // namespace kolo::internal::backend
