// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/gradient_norm.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/elements.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

bool is_real(DType dtype) {
  bool real = false;
  visit_real(dtype, [&](auto) { real = true; });
  return real;
}

void require_readable(const NamedTensor& gradient, const char* function) {
  const TensorView& tensor = gradient.tensor;
  if (tensor.device().type != DeviceType::cpu)
    throw InvalidArgument(
        fmt::format("{}: '{}' is in GPU memory; compute its norm there", function, gradient.name),
        gradient.name);
  if (!is_real(tensor.dtype()))
    throw InvalidArgument(fmt::format("{}: '{}' is {}, but a norm needs floating-point numbers",
                                      function, gradient.name, to_string(tensor.dtype())),
                          gradient.name);
}

}  // namespace

double norm_of(const std::vector<NamedTensor>& gradients, const char* function) {
  double squares = 0.0;
  for (const NamedTensor& gradient : gradients) {
    require_readable(gradient, function);
    const auto* const data = static_cast<const std::byte*>(gradient.tensor.data());
    const std::int64_t count = gradient.tensor.shape().elements();
    visit_real(gradient.tensor.dtype(), [&](auto type) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = static_cast<double>(computed(load<decltype(type)>(data, i)));
        squares += value * value;
      }
    });
  }
  return std::sqrt(squares);
}

void multiply(const std::vector<NamedTensor>& gradients, double factor) {
  for (const NamedTensor& gradient : gradients) {
    auto* const data = static_cast<std::byte*>(gradient.tensor.data());
    const std::int64_t count = gradient.tensor.shape().elements();
    visit_real(gradient.tensor.dtype(), [&](auto type) {
      using T = decltype(type);
      for (std::int64_t i = 0; i < count; ++i)
        store(data, i, rounded<T>(static_cast<double>(computed(load<T>(data, i))) * factor));
    });
  }
}

}  // namespace kolo::internal
