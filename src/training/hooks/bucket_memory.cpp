// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/bucket_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/elements.hpp"
#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

// The metadata entry that names the hook.
constexpr const char* kind_entry = "kind";

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

StateDict state_of(const std::string& kind, const BucketVectors& vectors) {
  ConstTensorViews views;
  for (const auto& [bucket, vector] : vectors) views.emplace(bucket, ConstTensorView(vector));
  return StateDict(views, {{kind_entry, kind}});
}

BucketVectors vectors_of(const std::string& kind, const StateDict& state) {
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument(fmt::format("this is not the state of a hook ({}): {}", kind, reason));
  };
  const auto found = state.metadata.find(kind_entry);
  if (found == state.metadata.end()) refuse("it does not name a hook");
  if (found->second != kind) refuse("it is of " + found->second);
  BucketVectors vectors;
  for (const auto& [bucket, tensor] : state.tensors) {
    if (tensor.dtype != DType::f32 || tensor.shape.dimensions() != 1)
      refuse("the tensor of bucket '" + bucket + "' is not a vector of f32");
    static_cast<void>(tensor.view());  // its size is that of its shape
    std::vector<float>& vector = vectors[bucket];
    vector.resize(tensor.bytes.size() / sizeof(float));
    if (!vector.empty()) std::memcpy(vector.data(), tensor.bytes.data(), tensor.bytes.size());
  }
  return vectors;
}

}  // namespace kolo::internal
