// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/bucket_memory.hpp"

#include <algorithm>

#include "base/elements.hpp"

namespace kolo::internal {
namespace {

template <typename T>
void gather_from(const std::byte* from, std::int64_t elements, float factor, const float* more,
                 float* to) {
  if (more == nullptr) {
    for (std::int64_t i = 0; i < elements; ++i)
      to[i] = static_cast<float>(computed(load<T>(from, i))) * factor;
  } else {
    for (std::int64_t i = 0; i < elements; ++i)
      to[i] = static_cast<float>(computed(load<T>(from, i))) * factor + more[i];
  }
}

}  // namespace

bool are_real(std::span<const TensorView> tensors) noexcept {
  return std::all_of(tensors.begin(), tensors.end(), [](const TensorView& tensor) {
    bool real = false;
    visit_real(tensor.dtype(), [&](auto) { real = true; });
    return real;
  });
}

std::int64_t elements_of(std::span<const TensorView> tensors) noexcept {
  std::int64_t sum = 0;
  for (const TensorView& tensor : tensors) sum += tensor.elements();
  return sum;
}

void gather(std::span<const TensorView> tensors, double factor, const float* more, float* to) {
  for (const TensorView& tensor : tensors) {
    const auto* const from = static_cast<const std::byte*>(tensor.data());
    const std::int64_t elements = tensor.elements();
    visit_real(tensor.dtype(), [&](auto type) {
      gather_from<decltype(type)>(from, elements, static_cast<float>(factor), more, to);
    });
    to += elements;
    if (more != nullptr) more += elements;
  }
}

void scatter(const float* from, std::span<const TensorView> tensors) {
  for (const TensorView& tensor : tensors) {
    auto* const to = static_cast<std::byte*>(tensor.data());
    const std::int64_t elements = tensor.elements();
    visit_real(tensor.dtype(), [&](auto type) {
      using T = decltype(type);
      for (std::int64_t i = 0; i < elements; ++i) store(to, i, rounded<T>(from[i]));
    });
    from += elements;
  }
}

}  // namespace kolo::internal
