// SPDX-License-Identifier: Apache-2.0
// The memory of the CUDA double, and the work that reads and writes this memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "backend/gpu/runtime/transfer_element.hpp"
#include "base/elements.hpp"
#include "fake_cuda.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

constexpr std::align_val_t alignment{256};  // as cudaMalloc

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

void FakeCuda::check_memory(const void* begin, std::size_t bytes, const char* what) {
  if (bytes > 0 && !is_memory(begin, bytes))
    fault(fmt::format("{} touches memory that is none of the device's", what));
}

bool FakeCuda::is_memory(const void* begin, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto* const first = static_cast<const std::byte*>(begin);
  auto after = memory_.upper_bound(first);
  if (after == memory_.begin()) return false;
  const auto& [start, memory] = *std::prev(after);
  return first + bytes <= start + memory.size;
}

void FakeCuda::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete[](memory, alignment);
}

std::byte* FakeCuda::take(std::size_t bytes, bool pinned) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<std::byte[], Free> made(
      static_cast<std::byte*>(::operator new[](bytes, alignment)));
  std::memset(made.get(), 0x5a, bytes);
  std::byte* const address = made.get();
  memory_[address] = {std::move(made), bytes, pinned};
  if (!pinned) peak_bytes_ = std::max(peak_bytes_, bytes_ += bytes);
  return address;
}

void FakeCuda::give_back(std::byte* memory, bool pinned) {
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(memory);
  if (found == memory_.end()) return complain("memory is released that was not given");
  if (found->second.pinned != pinned) complain("memory is released as if of the other kind");
  if (!found->second.pinned) bytes_ -= found->second.size;
  memory_.erase(found);
}

std::byte* FakeCuda::make_fresh_memory(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes - std::min(max_bytes, bytes_))
    throw BackendError(
        fmt::format("cudaMalloc failed: out of memory, {} bytes are in use", bytes_));
  return take(bytes, false);
}

std::byte* FakeCuda::make_memory(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto freed = freed_.find(bytes);
  if (freed == freed_.end()) return make_fresh_memory(bytes);
  std::byte* const memory = freed->second;
  freed_.erase(freed);
  peak_bytes_ = std::max(peak_bytes_, bytes_ += bytes);
  return memory;
}

void FakeCuda::free_memory(std::byte* memory, gpu::StreamHandle stream) {
  constexpr int garbage = 0xff;  // NaN
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(memory);
  if (found == memory_.end() || found->second.pinned)
    return complain("memory is freed that was not made");
  const std::size_t bytes = found->second.size;
  freed_.emplace(bytes, memory);
  bytes_ -= bytes;
  const auto overwrite = [=] {
    std::memset(memory, garbage, bytes);
    return true;
  };
  std::deque<Item>& work = streams_.at(ids_.at(stream)).work;
  if (work.empty())
    overwrite();
  else
    work.push_back({overwrite});
}

std::byte* FakeCuda::allocate(std::size_t bytes) {
  pass("cudaMalloc");
  pass_captures("cudaMalloc");
  return make_fresh_memory(bytes);
}
void FakeCuda::release(std::byte* memory) noexcept {
  pass_captures("cudaFree");
  wait_until_idle("cudaFree");
  give_back(memory, false);
}

std::byte* FakeCuda::allocate_pinned(std::size_t bytes) {
  pass("cudaHostAlloc");
  pass_captures("cudaHostAlloc");
  return take(bytes, true);
}
void FakeCuda::release_pinned(std::byte* memory) noexcept {
  pass_captures("cudaFreeHost");
  wait_until_idle("cudaFreeHost");
  give_back(memory, true);
}

void FakeCuda::copy(void* to, const void* from, std::size_t bytes, gpu::CopyKind kind,
                    gpu::StreamHandle stream) {
  pass("cudaMemcpyAsync");
  const int number = kind == gpu::CopyKind::to_host ? copies_to_host_++ : -1;
  if (kind == gpu::CopyKind::to_device) ++copies_to_device_;
  enqueue(stream, [=, this] {
    if (number >= max_copies_to_host) return false;
    check_memory(from, bytes, "a copy's source");
    check_memory(to, bytes, "a copy's target");
    std::memcpy(to, from, bytes);
    return true;
  });
}

void FakeCuda::launch(std::span<const gpu::Segment> segments, gpu::StreamHandle stream) {
  for (; !segments.empty(); segments = segments.subspan(launch_table(segments, stream))) {
  }
}

std::size_t FakeCuda::launch_table(std::span<const gpu::Segment> segments,
                                   gpu::StreamHandle stream) {
  const gpu::TransferTable table = gpu::make_table(segments);
  const auto count = static_cast<std::size_t>(table.count);
  pass("the launch of the transfer kernel");
  ++launches_;
  if (table.tiles < table.count) complain("a launch of an empty segment");
  enqueue(stream, [=, this] {
    for (const gpu::Segment& segment : std::span(table.segments).first(count)) {
      check_memory(segment.from, bytes_on(segment, segment.from_type), "a segment's source");
      check_memory(segment.to, bytes_on(segment, segment.to_type), "a segment's target");
      transfer_on_host(segment);
    }
    return true;
  });
  return count;
}

}  // namespace kolo::internal::backend
