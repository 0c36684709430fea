// SPDX-License-Identifier: Apache-2.0
#include "fake_cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

template <typename Handle>
std::uintptr_t number_of(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

}  // namespace

void Faults::pass(const std::string& call) {
  const std::lock_guard lock(mutex_);
  ++counts_[call];
  ++counts_by_thread_[std::this_thread::get_id()][call];
  const auto found = planned_.find(call);
  if (found == planned_.end() || found->second-- > 0) return;
  planned_.erase(found);
  throw BackendError(call + " failed: as planned");
}

int Faults::made(const std::string& call) {
  const std::lock_guard lock(mutex_);
  return counts_[call];
}

int Faults::made_by_this_thread(const std::string& call) {
  const std::lock_guard lock(mutex_);
  return counts_by_thread_[std::this_thread::get_id()][call];
}

FakeCuda::FakeCuda(std::vector<int> gpus, std::uint64_t seed, Clock clock)
    : gpus_(std::move(gpus)), random_(seed) {
  streams_[0] = {0};
  ids_[nullptr] = 0;
  if (clock == Clock::by_itself) thread_ = std::thread([this] { run(); });
}

FakeCuda::~FakeCuda() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

/// Work that waits for another rank's is tried again and again, at last with pauses.
void FakeCuda::run() {
  constexpr int patience = 100;
  int fruitless = 0;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!is_busy()) {
      changed_.wait(lock);
      continue;
    }
    lock.unlock();
    fruitless = advance() ? 0 : fruitless + 1;
    if (fruitless > patience)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else
      std::this_thread::yield();
    lock.lock();
  }
}

void FakeCuda::pass(const char* call) {
  faults.pass(call);
  const std::lock_guard lock(mutex_);
  if (!broken_.empty()) throw BackendError(fmt::format("{} failed: {}", call, broken_));
}

void FakeCuda::break_down(const std::string& error) {
  const std::lock_guard lock(mutex_);
  broken_ = error;
}

bool FakeCuda::is_broken() const {
  const std::lock_guard lock(mutex_);
  return !broken_.empty();
}

void FakeCuda::fault(const std::string& text) {
  complain(text);
  break_down("an illegal memory access was encountered");
}

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

bool FakeCuda::advance() {
  const std::lock_guard lock(mutex_);
  if (is_broken()) return false;
  std::vector<Number> busy;
  const TimePoint now = std::chrono::steady_clock::now();
  for (const auto& [number, stream] : streams_)
    if (!stream.work.empty() && stream.work.front().begins <= now) busy.push_back(number);
  if (busy.empty()) return false;
  const Number chosen = busy[random_() % busy.size()];
  Stream& stream = streams_[chosen];
  const bool done = stream.work.front().work();
  if (done) stream.work.pop_front();
  if (stream.destroyed && stream.work.empty()) streams_.erase(chosen);
  return done;
}

bool FakeCuda::is_busy() const {
  const std::lock_guard lock(mutex_);
  return broken_.empty() &&
         std::ranges::any_of(streams_, [](const auto& s) { return !s.second.work.empty(); });
}

void FakeCuda::wait_until(const char* call, const std::function<bool()>& is_over) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is_broken() && !is_over()) {
    if (std::chrono::steady_clock::now() > deadline)
      return complain(fmt::format("{} waits for ever", call));
    if (!advance()) std::this_thread::yield();
  }
}

void FakeCuda::wait_until_idle(const char* call) {
  wait_until(call, [this] { return !is_busy(); });
}

void FakeCuda::synchronize(gpu::StreamHandle stream) {
  pass("cudaStreamSynchronize");
  Number number = 0;
  {
    const std::lock_guard lock(mutex_);
    const Stream* const own = find_stream(stream, "cudaStreamSynchronize");
    if (own != nullptr && own->graph != nullptr)
      complain("cudaStreamSynchronize of a stream that is captured");
    number = id_of(stream);
  }
  wait_until("cudaStreamSynchronize", [&] {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(number);
    return found == streams_.end() || found->second.work.empty();
  });
  pass("cudaStreamSynchronize");
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
  pass("cudaStreamGetId");
  const std::lock_guard lock(mutex_);
  return id_of(stream);
}

void FakeCuda::enqueue(gpu::StreamHandle handle, Work work) {
  const std::lock_guard lock(mutex_);
  Stream* const stream = find_stream(handle, "enqueue");
  if (stream == nullptr) return;
  if (handle == nullptr && captures())
    complain("work is given to the default stream while another is captured");
  if (stream->graph != nullptr) return stream->graph->add(id_of(handle), std::move(work));
  TimePoint begins{};
  if (thread_.joinable())
    begins = std::chrono::steady_clock::now() + std::chrono::microseconds(random_() % 1000);
  stream->work.push_back({std::move(work), begins});
  changed_.notify_all();
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
  pass("cudaSetDevice");
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
  pass("cudaStreamCreateWithPriority");
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
  pass("cudaEventCreateWithFlags");
  const std::lock_guard lock(mutex_);
  events_[next_] = {current_device()};
  return reinterpret_cast<gpu::EventHandle>(next_++);
}

void FakeCuda::destroy_event(gpu::EventHandle event) noexcept {
  const std::lock_guard lock(mutex_);
  if (events_.erase(number_of(event)) == 0) complain("an event is destroyed twice");
}

void FakeCuda::record(gpu::EventHandle handle, gpu::StreamHandle stream) {
  pass("cudaEventRecord");
  const std::lock_guard lock(mutex_);
  Event* const event = find_event(handle, "cudaEventRecord");
  if (event == nullptr) return;
  const Stream* const own = find_stream(stream, "cudaEventRecord");
  if (stream != nullptr && own != nullptr && own->device != event->device)
    complain("cudaEventRecord with an event of another device");
  event->graph = own != nullptr ? own->graph : nullptr;
  if (event->graph != nullptr) {
    event->after = event->graph->clock(id_of(stream));
    return;
  }
  event->reached = std::make_shared<bool>(false);
  enqueue(stream, [reached = event->reached] { return *reached = true; });
}

/// A stream that waits for an event of a capture becomes a part of it.
void FakeCuda::wait(gpu::StreamHandle stream, gpu::EventHandle handle) {
  pass("cudaStreamWaitEvent");
  const std::lock_guard lock(mutex_);
  const Event* const event = find_event(handle, "cudaStreamWaitEvent");
  if (event == nullptr) return;
  Stream* const own = find_stream(stream, "cudaStreamWaitEvent");
  if (own == nullptr) return;
  if (event->graph != nullptr && !event->graph->has_ended() &&
      (own->graph == nullptr || own->graph == event->graph)) {
    own->graph = event->graph;
    return own->graph->join(id_of(stream), event->after);
  }
  require_uncaptured(*event, "cudaStreamWaitEvent");
  if (own->graph != nullptr) {
    complain("a captured stream waits for work outside of its graph");
    throw BackendError("cudaStreamWaitEvent failed: the wait is for uncaptured work");
  }
  if (event->reached == nullptr) return complain("a stream waits for an event without a record");
  enqueue(stream, [reached = event->reached] { return *reached; });
}

bool FakeCuda::is_done(gpu::EventHandle handle) {
  pass("cudaEventQuery");
  pass_captures("cudaEventQuery");
  const std::lock_guard lock(mutex_);
  const Event* const event = find_event(handle, "cudaEventQuery");
  if (event != nullptr) require_uncaptured(*event, "cudaEventQuery");
  return event != nullptr && (event->reached == nullptr || *event->reached);
}

void FakeCuda::synchronize(gpu::EventHandle handle) {
  pass("cudaEventSynchronize");
  pass_captures("cudaEventSynchronize");
  std::shared_ptr<bool> reached;
  {
    const std::lock_guard lock(mutex_);
    const Event* const event = find_event(handle, "cudaEventSynchronize");
    if (event == nullptr) return;
    require_uncaptured(*event, "cudaEventSynchronize");
    if (event->reached == nullptr) return;
    reached = event->reached;
  }
  wait_until("cudaEventSynchronize", [&] {
    const std::lock_guard lock(mutex_);
    return *reached;
  });
  pass("cudaEventSynchronize");
}

}  // namespace kolo::internal::backend
