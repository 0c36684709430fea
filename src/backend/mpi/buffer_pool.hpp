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
  /// `bytes` as it was asked for. Large ones, and those beyond a few of a size, are not kept.
  void give_back(Buffer buffer, std::int64_t bytes);

 private:
  // By the logarithm of the bytes.
  std::array<std::vector<Buffer>, 64> free_;
};

}  // namespace kolo::internal::backend::mpi
