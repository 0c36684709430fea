// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/gradient_norm.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/elements.hpp"
#include "base/format.hpp"
#include "kolo/collectives.hpp"
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

void require_positive(const char* name, double value) {
  if (value > 0.0) return;
  throw InvalidArgument(fmt::format("clip_grad_norm: {} must be positive, but is {}", name, value));
}

double agree_on_norm(double norm, const std::string& operation, const ProcessSet& set) {
  if (set.rank() >= 0)
    allreduce(norm, {.name = operation, .op = ReduceOp::max, .process_set = set});
  return norm;
}

double join_norms(double norm, double type, const std::string& operation, const ProcessSet& set) {
  if (set.rank() < 0) return norm;
  if (std::isinf(type)) return agree_on_norm(norm, operation, set);
  double powers = type == 2.0 ? norm * norm : std::pow(norm, type);
  allreduce(powers, {.name = operation, .op = ReduceOp::sum, .process_set = set});
  return type == 2.0 ? std::sqrt(powers) : std::pow(powers, 1.0 / type);
}

std::optional<double> clip_factor(double max_norm, double norm) {
  const double factor = max_norm / (norm + clip_margin);
  return factor < 1.0 || std::isnan(factor) ? std::optional(factor) : std::nullopt;
}

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
