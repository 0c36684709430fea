// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/reproducible.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "base/elements.hpp"
#include "kolo/error.hpp"
#include "training/agreement.hpp"
#include "training/reproducible/exact_reduction.hpp"

namespace kolo {

using namespace internal;

struct ReproducibleGradients::State {
  ReproducibleOptions options;
  ExactReduction reduction;
  std::vector<Item> items{};  // the gradients of the last reduction
};

namespace {

void require_real(std::span<const NamedTensor> gradients) {
  for (const NamedTensor& gradient : gradients) {
    bool real = false;
    visit_real(gradient.tensor.dtype(), [&](auto) { real = true; });
    if (!real || gradient.tensor.device().type != DeviceType::cpu)
      throw InvalidArgument("ReproducibleGradients: '" + gradient.name +
                                "' must be a floating-point tensor in host memory",
                            gradient.name);
  }
}

bool are_equal(const std::vector<Item>& a, const std::vector<Item>& b) {
  return std::ranges::equal(a, b, [](const Item& x, const Item& y) {
    return x.name == y.name && x.description == y.description;
  });
}

}  // namespace

ReproducibleGradients::ReproducibleGradients(const ReproducibleOptions& options)
    : state_(std::make_unique<State>(State{options, ExactReduction(options)})) {}
ReproducibleGradients::ReproducibleGradients(ReproducibleGradients&&) noexcept = default;
ReproducibleGradients& ReproducibleGradients::operator=(ReproducibleGradients&&) noexcept = default;
ReproducibleGradients::~ReproducibleGradients() = default;

std::vector<int> ReproducibleGradients::own_shards() const {
  return state_->reduction.own_shards();
}

void ReproducibleGradients::reduce(const std::function<void(int shard)>& compute,
                                   std::span<const NamedTensor> gradients) {
  require_real(gradients);
  std::vector<Item> items =
      items_of({gradients.begin(), gradients.end()}, "ReproducibleGradients: the gradients");
  if (!are_equal(items, state_->items)) {
    state_->reduction = ExactReduction(state_->options);
    for (const NamedTensor& gradient : gradients)
      state_->reduction.expect(gradient.name, gradient.tensor.elements());
    state_->items = std::move(items);
  }
  state_->reduction.run([&](int shard) {
    compute(shard);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      state_->reduction.add(i, gradients[i].tensor);
  });
  for (std::size_t i = 0; i < gradients.size(); ++i)
    state_->reduction.write_mean(i, gradients[i].tensor);
}

}  // namespace kolo
