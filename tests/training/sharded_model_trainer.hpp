// SPDX-License-Identifier: Apache-2.0
// A small model with forward and backward in plain C++, whose parameters a ShardedModel has or
// which are whole on each rank.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kolo/kolo.hpp"

namespace kolo::internal {

/// The model: layers x -> tanh(w * x + b) over `width` elements, between an input scale and an
/// output scale, the parameters of the root. The width is no multiple of any number of ranks.
struct Chain {
  static constexpr std::size_t width = 37;
  static constexpr std::size_t layers = 4;

  static std::vector<ShardedModel::Unit> units() {
    std::vector<ShardedModel::Unit> all{{"root", {{"in", width}, {"out", 1}}}};
    for (std::size_t i = 0; i < layers; ++i)
      all.push_back({"layer." + std::to_string(i), {{"w", width}, {"b", width}}});
    return all;
  }
  static float initial(std::size_t unit, std::size_t parameter, std::size_t k) {
    return 0.5F + 0.1F * std::sin(static_cast<float>(100 * unit + 10 * parameter + k));
  }
  static void fill(std::size_t unit, std::span<const TensorView> parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      for (std::int64_t k = 0; k < parameters[i].elements(); ++k)
        static_cast<float*>(parameters[i].data())[k] =
            initial(unit, i, static_cast<std::size_t>(k));
  }
};

/// The input of a rank in a step.
inline std::vector<float> batch_of(int step, int of_rank) {
  std::vector<float> batch(Chain::width);
  for (std::size_t k = 0; k < batch.size(); ++k)
    batch[k] = std::sin(static_cast<float>(step * 31 + of_rank * 7) + static_cast<float>(k));
  return batch;
}

using Floats = std::span<const float>;

inline std::vector<float> layer_forward(Floats x, Floats w, Floats b) {
  std::vector<float> y(x.size());
  for (std::size_t k = 0; k < x.size(); ++k) y[k] = std::tanh(w[k] * x[k] + b[k]);
  return y;
}

/// Adds to the gradients, and turns that of the output `d` into that of the input.
inline void layer_backward(std::vector<float>& d, Floats x, Floats y, Floats w, std::span<float> dw,
                           std::span<float> db) {
  for (std::size_t k = 0; k < d.size(); ++k) {
    const float inner = d[k] * (1.0F - y[k] * y[k]);
    dw[k] += inner * x[k];
    db[k] += inner;
    d[k] = inner * w[k];
  }
}

/// One rank's way through the model. `skipped` layers are not used.
class Pass {
 public:
  explicit Pass(std::vector<float> batch, std::set<std::size_t> skipped = {})
      : batch_(std::move(batch)), skipped_(std::move(skipped)) {}

  /// `of(layer, use)` calls `use(w, b)`.
  template <typename OfLayer>
  void forward(Floats in, const OfLayer& of) {
    streams_.assign(1, batch_);
    for (std::size_t k = 0; k < batch_.size(); ++k) streams_[0][k] *= in[k];
    for (std::size_t i = 0; i < Chain::layers; ++i) {
      if (skipped_.contains(i)) {
        streams_.push_back(streams_.back());
        continue;
      }
      of(i, [&](Floats w, Floats b) { streams_.push_back(layer_forward(streams_.back(), w, b)); });
    }
  }

  /// `of(layer, use)` calls `use(w, dw, db)`.
  template <typename OfLayer>
  void backward(Floats out, std::span<float> din, std::span<float> dout, const OfLayer& of) {
    std::vector<float> d(batch_.size());
    for (std::size_t k = 0; k < d.size(); ++k) {  // the loss is the sum of (out * y)^2 / 2
      const float y = streams_.back()[k];
      dout[0] += out[0] * y * y;
      d[k] = out[0] * out[0] * y;
    }
    for (std::size_t i = Chain::layers; i-- > 0;) {
      if (skipped_.contains(i)) continue;
      of(i, [&](Floats w, std::span<float> dw, std::span<float> db) {
        layer_backward(d, streams_[i], streams_[i + 1], w, dw, db);
      });
    }
    for (std::size_t k = 0; k < d.size(); ++k) din[k] += d[k] * batch_[k];
  }

 private:
  std::vector<float> batch_;
  std::set<std::size_t> skipped_;
  std::vector<std::vector<float>> streams_{};  // before each layer, and at the end
};

inline void forward(ShardedModel& model, Pass& pass) {
  auto guard = model.begin_forward();
  pass.forward(guard.parameter<float>(0), [&](std::size_t i, const auto& use) {
    const auto layer = guard.use(1 + i);
    use(layer.parameter<float>(0), layer.parameter<float>(1));
  });
  guard.end();
}

inline void backward(ShardedModel& model, Pass& pass, const ShardedModel::Pass& options = {}) {
  auto guard = model.begin_backward(options);
  pass.backward(guard.parameter<float>(1), guard.gradient<float>(0), guard.gradient<float>(1),
                [&](std::size_t i, const auto& use) {
                  const auto layer = guard.use(1 + i);
                  use(layer.parameter<float>(0), layer.gradient<float>(0),
                      layer.gradient<float>(1));
                });
  guard.end();
}

/// Adam, over whole parameters or shards of them: a parameter, its gradient and its moments.
class ElementwiseAdam {
 public:
  void step(const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& gradients) {
    ++steps_;
    moments_.resize(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto count = static_cast<std::size_t>(parameters[i].tensor.elements());
      moments_[i].resize(2 * count);
      for (std::size_t k = 0; k < count; ++k)
        update(static_cast<float*>(parameters[i].tensor.data())[k],
               static_cast<const float*>(gradients[i].tensor.data())[k], moments_[i][2 * k],
               moments_[i][2 * k + 1]);
    }
  }

 private:
  void update(float& parameter, float gradient, float& first, float& second) const {
    first += 0.1F * (gradient - first);
    second += 0.001F * (gradient * gradient - second);
    parameter -= 0.01F * first / (std::sqrt(second) + 1e-8F) * static_cast<float>(steps_ % 7);
  }

  std::vector<std::vector<float>> moments_{};
  int steps_ = 0;
};

/// The same model with whole parameters, for a DistributedOptimizer.
class WholeChain {
 public:
  WholeChain() {
    const auto units = Chain::units();
    for (std::size_t unit = 0; unit < units.size(); ++unit)
      for (std::size_t i = 0; i < units[unit].parameters.size(); ++i) {
        const auto& parameter = units[unit].parameters[i];
        names_.push_back(units[unit].name + "." + parameter.name);
        weights_.emplace_back(static_cast<std::size_t>(parameter.elements));
        gradients_.emplace_back(static_cast<std::size_t>(parameter.elements));
        for (std::size_t k = 0; k < weights_.back().size(); ++k)
          weights_.back()[k] = Chain::initial(unit, i, k);
      }
  }

  std::vector<NamedTensor> gradients() { return named(gradients_); }
  std::vector<NamedTensor> parameters() { return named(weights_); }
  void step() { adam_.step(parameters(), gradients()); }
  void zero() {
    for (auto& gradient : gradients_) std::fill(gradient.begin(), gradient.end(), 0.0F);
  }
  void train(Pass& pass) {
    pass.forward(weights_[0], [&](std::size_t i, const auto& use) {
      use(Floats(weights_[2 + 2 * i]), Floats(weights_[3 + 2 * i]));
    });
    pass.backward(weights_[1], gradients_[0], gradients_[1], [&](std::size_t i, const auto& use) {
      use(Floats(weights_[2 + 2 * i]), std::span(gradients_[2 + 2 * i]),
          std::span(gradients_[3 + 2 * i]));
    });
  }

  [[nodiscard]] const std::vector<std::vector<float>>& weights() const { return weights_; }

 private:
  std::vector<NamedTensor> named(std::vector<std::vector<float>>& values) const {
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < values.size(); ++i) tensors.push_back({names_[i], values[i]});
    return tensors;
  }

  std::vector<std::string> names_{};
  std::vector<std::vector<float>> weights_{};
  std::vector<std::vector<float>> gradients_{};
  ElementwiseAdam adam_{};
};

/// The whole parameters of a model, of all ranks' shards.
inline std::vector<std::vector<float>> whole_of(const std::vector<NamedTensor>& shards) {
  std::vector<std::vector<float>> whole;
  for (const auto& [name, tensor] : shards)
    whole.push_back(allgather(std::span(static_cast<const float*>(tensor.data()),
                                        static_cast<std::size_t>(tensor.elements())))
                        .values);
  return whole;
}

}  // namespace kolo::internal
