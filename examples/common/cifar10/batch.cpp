// SPDX-License-Identifier: Apache-2.0
#include "batch.hpp"

#include <algorithm>

namespace cifar10 {

void Batch::fill(const Dataset& dataset, std::span<const std::int64_t> indices, Random* random,
                 Transformation (*draw)(Random&)) {
  labels.resize(indices.size());
  pixels.resize(indices.size() * image_bytes);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto index = static_cast<std::size_t>(indices[i]);
    labels[i] = dataset.labels[index];
    const Transformation transformation = random != nullptr ? draw(*random) : Transformation{};
    transform(dataset.image(index), transformation,
              std::span(pixels).subspan(i * image_bytes, image_bytes));
  }
}

std::span<const std::int64_t> batch_of(std::span<const std::int64_t> indices, std::size_t batch,
                                       std::size_t batch_size) {
  const std::size_t first = batch * batch_size;
  return indices.subspan(first, std::min(batch_size, indices.size() - first));
}

std::size_t batch_count(std::size_t images, std::size_t batch_size) {
  return (images + batch_size - 1) / batch_size;
}

}  // namespace cifar10
