// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer: its state in checkpoints.
#include "../training/scratch_directory.hpp"
#include "sharded_network.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace kolo::internal::testing_support {
namespace {

using ShardedStateTest = TorchTest;

/// The root's state, on all ranks.
StateDict sent_by(int root, const StateDict& state) {
  std::string bytes = to_safetensors(state);
  broadcast(bytes, root);
  return from_safetensors(bytes);
}

void assign(Network& network, const Tensors& values) {
  const ::torch::NoGradGuard no_grad;
  const Tensors parameters = network.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ::torch::Tensor parameter = parameters[i];
    parameter.copy_(values[i]);
  }
}

TEST_F(ShardedStateTest, StateMovesBetweenKindsAndNumbersOfRanks) {
  const auto make_base = [](Network& network) {
    return optim::AdamW(network.parameters(), optim::AdamWOptions(0.01).amsgrad(true));
  };
  Network whole;
  DistributedOptimizer replicated(make_base(whole), whole.named_parameters());
  Network parts;
  ShardedOptimizer sharded(make_base(parts), parts.named_parameters());
  for (int step = 0; step < 3; ++step) {
    usual_step(whole, replicated, step);
    usual_step(parts, sharded, step);
  }
  const int root = size() - 1;
  StateDict full = sharded.full_state(root);
  EXPECT_EQ(full.empty(), rank() != root);
  if (rank() == root) {
    EXPECT_EQ(full, state(replicated));
  }
  full = sent_by(root, full);
  Tensors saved;
  for (const auto& parameter : parts.parameters()) saved.push_back(parameter.detach().clone());

  // Each group of ranks goes on by itself, with the same data on its ranks.
  const ProcessSet first = add_process_set(ranks_by(1, std::min(size(), 2)));
  for (const bool is_sharded : {true, false}) {
    Network again(7);
    const DistributedOptimizerOptions options{.process_set = first};
    const auto go_on = [&](auto optimizer, const auto& load) {
      load(optimizer);
      assign(again, saved);
      for (int step = 3; step < 5; ++step) {
        optimizer.zero_grad();
        ::torch::manual_seed(static_cast<std::uint64_t>(step));
        again.forward(::torch::randn({4, 3, 6, 6})).pow(2).mean().backward();
        optimizer.step();
      }
    };
    if (is_sharded) {
      go_on(ShardedOptimizer(make_base(again), again.named_parameters(), options),
            [&](auto& optimizer) { optimizer.load_full_state(full); });
    } else {
      go_on(DistributedOptimizer(make_base(again), again.named_parameters(), options),
            [&](auto& optimizer) { load_state(optimizer, full); });
    }
    // One process.
    Network alone(9);
    optim::AdamW plain = make_base(alone);
    load_state(plain, full);
    assign(alone, saved);
    for (int step = 3; step < 5; ++step) {
      plain.zero_grad();
      ::torch::manual_seed(static_cast<std::uint64_t>(step));
      alone.forward(::torch::randn({4, 3, 6, 6})).pow(2).mean().backward();
      plain.step();
    }
    expect_close(flat(again.parameters()), flat(alone.parameters()), 1e-6);
  }
  EXPECT_THROW(sharded.load_full_state("?"), InvalidArgument);
  EXPECT_THROW(broadcast_optimizer_state(sharded, 0), InvalidArgument);
}

/// The states of all ranks, as if each had saved its own.
std::vector<StateView> of_all_ranks(const StateView& own) {
  std::vector<StateView> all;
  for (const std::string& bytes : allgather(to_safetensors(own.copy())))
    all.emplace_back(from_safetensors(bytes));
  return all;
}

std::string load_error(const std::function<void()>& load) { return error_of<Error>(load).what(); }

TEST_F(ShardedStateTest, EachRankSavesItsShardsForAnyNumberOfRanks) {
  const ScratchDirectory scratch;
  Checkpointer checkpoints({.directory = scratch.path()});
  Network network;
  const auto base = [](Network& of) {
    return optim::Adam(of.parameters(), optim::AdamOptions(0.01).amsgrad(true));
  };
  ShardedOptimizer optimizer(base(network), network.named_parameters());
  usual_step(network, optimizer, 0);
  usual_step(network, optimizer, 1);
  checkpoints.save_async(1, {}, {.per_rank = {{"optimizer", state_view(optimizer)}}});
  const StateDict whole = sent_by(0, optimizer.full_state(0));
  const std::optional<Checkpoint> found = checkpoints.load_latest();
  ASSERT_TRUE(found.has_value());
  const std::vector<StateView> shards = found->per_rank_parts("optimizer");
  EXPECT_EQ(shards.size(), static_cast<std::size_t>(size()));

  const ProcessSet fewer = add_process_set(ranks_by(1, std::max(size() - 1, 1)));
  Network other;
  ShardedOptimizer loaded(base(other), other.named_parameters(), {.process_set = fewer});
  Network another;
  ShardedOptimizer expected(base(another), another.named_parameters(), {.process_set = fewer});
  loaded.load_sharded_state(shards);
  expected.load_full_state(whole);
  EXPECT_EQ(state(loaded), state(expected));
  // And back: the rank outside the set has no shards.
  optimizer.load_sharded_state(of_all_ranks(state_view(loaded)));
  EXPECT_EQ(sent_by(0, optimizer.full_state(0)), whole);
  barrier();
}

TEST_F(ShardedStateTest, ShardsOfAnotherKindAreRefusedOnAllRanks) {
  Network network;
  ShardedOptimizer optimizer(optim::Adam(network.parameters(), 0.01), network.named_parameters());
  usual_step(network, optimizer, 0);
  const std::vector<StateView> right = of_all_ranks(state_view(optimizer));
  const StateDict before = sent_by(0, optimizer.full_state(0));
  // Deep enough that a recursive function would exhaust the stack.
  const std::string nested = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  ::torch::Tensor w = parameter({1.0, 2.0});
  ShardedOptimizer unlike(optim::Adam({w}, 0.01));
  EXPECT_THAT(load_error([&] { unlike.load_sharded_state(right); }),
              HasSubstr("is that of other parameters"));
  const auto refused = [&](const auto& change) {
    std::vector<StateView> wrong = right;
    change(wrong);
    return load_error([&] { optimizer.load_sharded_state(wrong); });
  };
  EXPECT_THAT(refused([](auto& all) { all.clear(); }), HasSubstr("has no shards"));
  EXPECT_THAT(refused([](auto& all) { all[0].metadata.erase("kolo.shard"); }),
              HasSubstr(size() > 1 ? "is not complete" : "has no shards"));
  EXPECT_THAT(refused([&](auto& all) { all[0].metadata["param_groups"] = nested; }),
              HasSubstr("param_groups is nested too deeply"));
  EXPECT_THAT(refused([&](auto& all) { all[0].metadata["kolo.shard_parameters"] = nested; }),
              HasSubstr("they are unknown in it"));
  EXPECT_THAT(refused([](auto& all) {
                all[0].tensors["state.99.exp_avg"] = all[0].tensors.at("state.0.exp_avg");
              }),
              HasSubstr("'state.99.exp_avg', which belongs to no parameter"));
  EXPECT_THAT(refused([](auto& all) {
                all.back().tensors.at("state.0.exp_avg").read = [](auto, auto) {
                  throw std::runtime_error("the file is gone");
                };
              }),
              HasSubstr("the file is gone"));
  EXPECT_THAT(refused([](auto& all) { all.push_back(all[0]); }), HasSubstr("twice: optimizers of"));
  if (size() > 1) {
    EXPECT_THAT(refused([](auto& all) { all.pop_back(); }), HasSubstr("is not complete"));
    EXPECT_THAT(refused([](auto& all) { all.back().tensors.erase("state.0.exp_avg"); }),
                HasSubstr("lacks elements of the tensor 'state.0.exp_avg'"));
  }
  EXPECT_EQ(sent_by(0, optimizer.full_state(0)), before);
  optimizer.load_sharded_state(right);
  usual_step(network, optimizer, 1);
  expect_same_bits_on_all_ranks(network.parameters());
}

// A network, and a second one whose parameters are added to the optimizer.
struct Program {
  Network body{1};
  Network head{2};
  template <typename Wrap>
  auto optimizer(const Wrap& wrap) {
    return wrap(optim::Adam(body.parameters(), 0.01));
  }
  template <typename Optimizer>
  void add_head(Optimizer& optimizer) {
    optimizer.add_param_group(
        optim::OptimizerParamGroup(head.parameters(), std::make_unique<optim::AdamOptions>(0.1)));
  }
  template <typename Optimizer>
  void step(Optimizer& optimizer, int number) {
    optimizer.zero_grad();
    (body.loss(number) + head.loss(number)).backward();
    optimizer.step();
  }
  Tensors parameters() { return {flat(body.parameters()), flat(head.parameters())}; }
};

// A group of parameters is added after a step, and another optimizer loads before it makes one.
TEST_F(ShardedStateTest, AddedParametersAreSavedAndLoaded) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    const auto in_parts = [&](auto base) {
      return ShardedOptimizer(std::move(base), {}, sharding);
    };
    Program whole;
    Program parts;
    DistributedOptimizer replicated(optim::Adam(whole.body.parameters(), 0.01));
    auto sharded = parts.optimizer(in_parts);
    usual_step(whole.body, replicated, 0);
    usual_step(parts.body, sharded, 0);
    whole.add_head(replicated);
    parts.add_head(sharded);
    const auto expect_replicated = [&](const StateDict& full) {
      EXPECT_EQ(full, rank() == 0 ? state(replicated) : StateDict());
    };
    expect_replicated(sharded.full_state(0));
    whole.step(replicated, 1);
    parts.step(sharded, 1);
    StateDict full = sharded.full_state(0);
    expect_replicated(full);
    full = sent_by(0, full);
    const StateDict own = state(sharded);
    const std::vector<StateView> shards = of_all_ranks(own);
    const Tensors before = parts.parameters();

    parts.step(sharded, 2);
    for (const char* const from : {"shards", "whole", "own"}) {
      SCOPED_TRACE(from);
      Program resumed;
      auto optimizer = resumed.optimizer(in_parts);
      resumed.add_head(optimizer);
      if (*from == 's') optimizer.load_sharded_state(shards);
      if (*from == 'w') optimizer.load_full_state(full);
      if (*from == 'o') load_state(optimizer, own);
      for (int i = 0; i < 2; ++i) {
        const ::torch::NoGradGuard no_grad;
        std::int64_t at = 0;
        for (::torch::Tensor& parameter : (i == 0 ? resumed.body : resumed.head).parameters()) {
          parameter.copy_(before[static_cast<std::size_t>(i)]
                              .slice(0, at, at + parameter.numel())
                              .view(parameter.sizes()));
          at += parameter.numel();
        }
      }
      resumed.step(optimizer, 2);
      EXPECT_TRUE(same_bits(flat(resumed.parameters()), flat(parts.parameters())));
    }
  }
}

TEST_F(ShardedStateTest, OnesOwnPartIsSavedAndLoaded) {
  Network network;
  ShardedOptimizer optimizer(optim::Adam(network.parameters(), 0.01), network.named_parameters());
  usual_step(network, optimizer, 0);
  const StateDict part = state(optimizer);
  const Tensors before = network.parameters();
  Network other(5);
  ShardedOptimizer resumed(optim::Adam(other.parameters(), 0.5), other.named_parameters());
  load_state(resumed, part);
  assign(other, before);
  usual_step(network, optimizer, 1);
  usual_step(other, resumed, 1);
  EXPECT_TRUE(same_bits(flat(network.parameters()), flat(other.parameters())));
}

TEST_F(ShardedStateTest, APartIsLoadedOnItsRankOnly) {
  ::torch::Tensor w = ::torch::ones({8 * size()}, f64).set_requires_grad(true);
  ShardedOptimizer optimizer(optim::Adam({w}, 0.01));
  backward(w, 1.0);
  optimizer.step();
  const StateDict first = sent_by(0, state(optimizer));
  if (rank() == 0) {
    load_state(optimizer, first);
  } else {
    EXPECT_THAT(error_of<InvalidArgument>([&] { load_state(optimizer, first); }).what(),
                HasSubstr("shard 1 of"));
  }
  ::torch::Tensor v = ::torch::ones({8}, f64).set_requires_grad(true);
  optim::Adam plain({v}, 0.01);
  EXPECT_THROW(load_state(plain, first), InvalidArgument);
  const StateDict whole = sent_by(0, optimizer.full_state(0));
  EXPECT_THROW(load_state(optimizer, whole), InvalidArgument);
  optimizer.load_full_state(whole);
}

// An elementwise optimizer of the user's own.
class OwnSgd : public optim::SGD {
 public:
  using SGD::SGD;
};

}  // namespace
}  // namespace kolo::internal::testing_support

template <>
inline constexpr bool kolo::is_elementwise_optimizer<kolo::internal::testing_support::OwnSgd> =
    true;

namespace kolo::internal::testing_support {
namespace {

TEST_F(ShardedStateTest, SaysWhyAStateCannotBeSaved) {
  ::torch::Tensor w = ::torch::ones({8 * size()}).set_requires_grad(true);
  ShardedOptimizer own(OwnSgd({w}, 0.1));
  const char* const classes = "its class is none of SGD, Adam, AdamW, RMSprop and Adagrad";
  EXPECT_THAT(refusal_of([&] { (void)own.full_state(0); }), HasSubstr(classes));

  ::torch::Tensor v = ::torch::ones({8 * size()}).set_requires_grad(true);
  ShardedOptimizer optimizer(optim::Adam({v}, 0.1));
  backward(v, 1.0);
  optimizer.step();
  for (auto& [key, state] : optimizer.state()) {
    auto& adam = dynamic_cast<optim::AdamParamState&>(*state);
    adam.exp_avg(adam.exp_avg().to(::torch::kComplexFloat));
  }
  EXPECT_THAT(refusal_of([&] { (void)optimizer.full_state(0); }), HasSubstr("'state.0.exp_avg'"));
}

TEST_F(ShardedStateTest, BytesOfACustomOptimizerAreOfOneRank) {
  ::torch::Tensor w = ::torch::ones({8 * size()}).set_requires_grad(true);
  ShardedOptimizer optimizer(OwnSgd({w}, optim::SGDOptions(0.1).momentum(0.5)));
  backward(w, 1.0);
  optimizer.step();
  const StateDict own = state(optimizer);
  load_state(optimizer, own);
  const StateDict of_first = sent_by(0, own);
  if (rank() == 0) {
    load_state(optimizer, of_first);
  } else {
    EXPECT_THAT(refusal_of([&] { load_state(optimizer, of_first); }), HasSubstr("shard 1 of "));
  }
  ::torch::Tensor v = ::torch::ones({8}).set_requires_grad(true);
  OwnSgd alone({v}, 0.1);
  EXPECT_THAT(refusal_of([&] { load_state(alone, own); }), HasSubstr("not the full state"));
}

}  // namespace
}  // namespace kolo::internal::testing_support
