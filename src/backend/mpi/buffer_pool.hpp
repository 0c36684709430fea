// SPDX-License-Identifier: Apache-2.0
// A pool of buffers for transfers, kept from batch to batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kolo::internal::backend::mpi {

struct FreeBuffer {
  void operator()(std::byte* buffer) const;
};

/// Aligned to cache lines.
using Buffer = std::unique_ptr<std::byte[], FreeBuffer>;

/// Used by one thread at a time.
class BufferPool {
 public:
  /// Returns at least `bytes` of uninitialized memory.
  [[nodiscard]] Buffer take(std::int64_t bytes);
  /// `bytes` is the size that was passed to `take`. The pool keeps at most 64 MiB, and a few
  /// buffers of each size.
  void give_back(Buffer buffer, std::int64_t bytes);

 private:
  // Indexed by the logarithm of the size.
  std::array<std::vector<Buffer>, 64> free_;
  std::int64_t kept_bytes_ = 0;
};

}  // namespace kolo::internal::backend::mpi
