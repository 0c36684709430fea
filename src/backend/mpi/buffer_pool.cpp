// SPDX-License-Identifier: Apache-2.0
#include "backend/mpi/buffer_pool.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace kolo::internal::backend::mpi {
namespace {

constexpr std::align_val_t alignment{64};
constexpr std::size_t max_kept = 16;      // buffers of each size
constexpr std::size_t max_kept_log = 26;  // 64 MiB
constexpr std::int64_t max_kept_bytes = std::int64_t{1} << max_kept_log;

/// The logarithm of the power of two that holds `bytes`.
std::size_t size_log(std::int64_t bytes) {
  return static_cast<std::size_t>(
      std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 64) - 1)));
}

// Kept buffers are powers of two, so that a buffer fits later transfers of similar sizes. The
// system provides only the pages that are written.
std::int64_t size_of(std::int64_t bytes) {
  const std::size_t log = size_log(bytes);
  return log <= max_kept_log ? std::int64_t{1} << log : bytes;
}

}  // namespace

void FreeBuffer::operator()(std::byte* buffer) const { ::operator delete[](buffer, alignment); }

Buffer BufferPool::take(std::int64_t bytes) {
  const std::size_t log = size_log(bytes);
  if (std::vector<Buffer>& kept = free_[log]; !kept.empty()) {
    Buffer buffer = std::move(kept.back());
    kept.pop_back();
    kept_bytes_ -= size_of(bytes);
    return buffer;
  }
  const auto size = static_cast<std::size_t>(size_of(bytes));
  return Buffer(static_cast<std::byte*>(::operator new[](size, alignment)));
}

void BufferPool::give_back(Buffer buffer, std::int64_t bytes) {
  const std::size_t log = size_log(bytes);
  if (log > max_kept_log || free_[log].size() == max_kept) return;
  if (kept_bytes_ + size_of(bytes) > max_kept_bytes) return;
  free_[log].push_back(std::move(buffer));
  kept_bytes_ += size_of(bytes);
}

}  // namespace kolo::internal::backend::mpi
