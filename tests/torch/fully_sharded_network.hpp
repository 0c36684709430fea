// SPDX-License-Identifier: Apache-2.0
// A model in units, and the same one whole.
#pragma once

#include "support.hpp"

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kolo::internal::testing_support {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using ::torch::Tensor;

struct BlockImpl : nn::Module {
  explicit BlockImpl(int width)
      : norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        up(register_module("up", nn::Linear(width, 2 * width))),
        down(register_module("down", nn::Linear(2 * width, width))) {}

  Tensor forward(const Tensor& input) {
    if (fails) throw std::runtime_error("this forward fails");
    return input + down(::torch::gelu(up(norm(input))));
  }

  nn::LayerNorm norm;
  nn::Linear up;
  nn::Linear down;
  bool fails = false;
};
TORCH_MODULE(Block);

/// `BlockHolder`: Block, or Sharded<Block>.
template <typename BlockHolder>
struct NetImpl : nn::Module {
  explicit NetImpl(int width = 7, int count = 4)
      : input(register_module("input", nn::Linear(5, width))),
        head(register_module("head", nn::Linear(width, 3))) {
    for (int i = 0; i < count; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), BlockHolder(width)));
      path.push_back(static_cast<std::size_t>(i));
    }
  }

  Tensor forward(const Tensor& data) {
    Tensor hidden = input(data);
    for (std::size_t use = 0; use < path.size(); ++use) {
      if (skipped.contains(use)) continue;
      const auto block = [this, i = path[use]](const Tensor& x) { return blocks[i]->forward(x); };
      hidden = wrap ? wrap(block, hidden) : block(hidden);
    }
    return head(hidden);
  }

  nn::Linear input;
  nn::Linear head;
  std::vector<BlockHolder> blocks{};
  std::vector<std::size_t> path{};  // the blocks in the order in which forward uses them
  std::set<std::size_t> skipped{};  // places in it
  std::function<Tensor(const std::function<Tensor(const Tensor&)>&, const Tensor&)> wrap{};
};

using Net = nn::ModuleHolder<NetImpl<Block>>;
using ShardedNet = Sharded<nn::ModuleHolder<NetImpl<Sharded<Block>>>>;

template <typename Model>
Model make_net() {
  ::torch::manual_seed(3);
  return Model(7);
}

/// This rank's data of a step.
inline Tensor data_of(int step, int rank = kolo::rank()) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 * step + rank));
  return ::torch::randn({4, 5}, generator);
}

template <typename Model>
Tensor loss_of(Model& model, int step) {
  return model->forward(data_of(step)).square().mean();
}

/// One step of either kind of training.
inline constexpr auto usual = [](auto& model, auto& /*gradients*/, auto& optimizer, int step) {
  optimizer.zero_grad();
  loss_of(model, step).backward();
  optimizer.step();
};

/// Does nothing in forward and throws in backward.
struct Throw : ::torch::autograd::Function<Throw> {
  static Tensor forward(::torch::autograd::AutogradContext* /*context*/, const Tensor& input) {
    return input.clone();
  }
  static ::torch::autograd::variable_list backward(
      ::torch::autograd::AutogradContext* /*context*/,
      const ::torch::autograd::variable_list& /*gradients*/) {
    throw std::runtime_error("this backward fails");
  }
};

/// Names and bits of all tensors.
inline void expect_same_state(const StateDict& actual, const StateDict& expected) {
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    ASSERT_TRUE(actual.tensors.contains(name)) << name;
    EXPECT_TRUE(actual.tensors.at(name) == tensor) << name << " has other bits";
  }
}

inline void expect_close_states(const StateDict& found, const StateDict& expected) {
  for (const auto& [name, tensor] : expected.tensors) {
    const auto values = [&](const StateDict& state) {
      const auto& one = state.tensors.at(name);
      std::vector<float> floats(one.bytes.size() / sizeof(float));
      std::memcpy(floats.data(), one.bytes.data(), one.bytes.size());
      return floats;
    };
    const std::vector<float> a = values(found);
    const std::vector<float> b = values(expected);
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << name;
  }
}

/// The state after training the replicated model. `step(model, optimizer, number)`.
template <typename Base, typename Options, typename Step>
StateDict train_replicated(const Options& options, const Step& step, int steps) {
  auto model = make_net<Net>();
  DistributedOptimizer optimizer(Base(model->parameters(), options), model->named_parameters());
  for (int i = 0; i < steps; ++i) step(model, optimizer, optimizer, i);
  return state(*model);
}

template <typename Base, typename Options, typename Step>
StateDict train_sharded(const Options& options, const Step& step, int steps,
                        const FullyShardedOptions& how = {}) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model, how);
  Base optimizer(sharded.parameters(), options);
  for (int i = 0; i < steps; ++i) step(model, sharded, optimizer, i);
  return sharded.full_state();
}

}  // namespace kolo::internal::testing_support
