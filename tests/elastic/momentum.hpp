// SPDX-License-Identifier: Apache-2.0
// A custom optimizer whose gradients depend on all bits of its weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <kolo/kolo.hpp>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace kolo::internal {

/// `exact`: gradients are multiples of 2^-30, so that their sum does not depend on the order in
/// which ranks are added, which differs between hosts.
struct Momentum {
  bool exact;
  std::vector<double> weights;
  std::vector<double> momentum;
  SharedVector<double> gradient;  // memory that the ranks share

  Momentum(std::size_t size, bool is_exact)
      : exact(is_exact), weights(size), momentum(size), gradient(size) {
    for (std::size_t i = 0; i < size; ++i) weights[i] = 1.0 / static_cast<double>(i + 7);
  }

  [[nodiscard]] std::vector<NamedTensor> gradients() { return {{"weights", gradient}}; }
  [[nodiscard]] std::vector<NamedTensor> parameters() { return {{"weights", weights}}; }

  /// DistributedOptimizer calls the first, ShardedOptimizer the second.
  void step() { update(0, weights.size()); }
  void step(std::span<const Shard> shards) {
    for (const Shard& shard : shards)
      update(static_cast<std::size_t>(shard.begin), static_cast<std::size_t>(shard.end));
  }

  /// Computes the gradient of these examples.
  void compute(std::span<const std::int64_t> of) {
    constexpr double unit = 1.0 / (1 << 30);
    std::fill(gradient.begin(), gradient.end(), 0.0);
    for (const std::int64_t example : of)
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] += 1.0 / static_cast<double>(3 + example + static_cast<std::int64_t>(i)) -
                       0.01 * weights[i];
    if (!exact) return;
    for (double& each : gradient) each = std::nearbyint(each / unit) * unit;
  }

 private:
  void update(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      momentum[i] = 0.9 * momentum[i] + gradient[i];
      weights[i] -= 0.05 * momentum[i];
    }
  }
};

/// The momentum under a ShardedOptimizer: each rank has that of its shard, and NaN elsewhere.
class ShardedMomentum : public elastic::StateHandler {
 public:
  /// `shard`: returns this rank's shard in the current session.
  ShardedMomentum(Momentum& model, std::function<Shard()> shard)
      : model_(model), shard_(std::move(shard)) {}

  [[nodiscard]] bool saves_together() const override { return true; }
  void save(StateDict& state) override {
    const auto own = shard_of(model_.momentum);
    const auto all = allgather(own, {.name = "momentum"}).values;
    state = StateDict({{"momentum", all}});
  }
  void load(const StateDict& state) override {
    std::fill(model_.momentum.begin(), model_.momentum.end(),
              std::numeric_limits<double>::quiet_NaN());
    const auto own = shard_of(model_.momentum);
    std::memcpy(own.data(),
                state.tensors.at("momentum").bytes.data() +
                    static_cast<std::size_t>(shard_().begin) * sizeof(double),
                own.size_bytes());
  }

 private:
  [[nodiscard]] std::span<double> shard_of(std::vector<double>& all) const {
    const Shard shard = shard_();
    return std::span(all).subspan(static_cast<std::size_t>(shard.begin),
                                  static_cast<std::size_t>(shard.size()));
  }

  Momentum& model_;
  std::function<Shard()> shard_;
};

}  // namespace kolo::internal
