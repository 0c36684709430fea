// SPDX-License-Identifier: Apache-2.0
// Buffers for transfers, kept for the next batch.
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

/// One thread at a time.
class BufferPool {
 public:
  /// At least so many bytes; not initialized.
  [[nodiscard]] Buffer take(std::int64_t bytes);
  /// `bytes` as it was asked for. Keeps at most 64 MiB, and a few buffers of a size.
  void give_back(Buffer buffer, std::int64_t bytes);

 private:
  // By the logarithm of the bytes.
  std::array<std::vector<Buffer>, 64> free_;
  std::int64_t kept_bytes_ = 0;
};

}  // namespace kolo::internal::backend::mpi
