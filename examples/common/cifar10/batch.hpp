// SPDX-License-Identifier: Apache-2.0
// A batch of images in the network's format, in memory that the next batch reuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "augmentation.hpp"
#include "dataset.hpp"
#include "random.hpp"

namespace cifar10 {

struct Batch {
  std::vector<float> pixels;         ///< [n, 32, 32, 3], from 0 to 1.
  std::vector<std::int64_t> labels;  ///< [n]

  /// Fills the batch with these images of the data set. With `random`, `draw` augments them.
  void fill(const Dataset& dataset, std::span<const std::int64_t> indices, Random* random = nullptr,
            Transformation (*draw)(Random&) = draw_transformation);
};

/// The indices of batch number `batch`; the last batch may be smaller.
[[nodiscard]] std::span<const std::int64_t> batch_of(std::span<const std::int64_t> indices,
                                                     std::size_t batch, std::size_t batch_size);

/// The number of batches, including a smaller last one.
[[nodiscard]] std::size_t batch_count(std::size_t images, std::size_t batch_size);

}  // namespace cifar10
