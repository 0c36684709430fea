// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer: its state in checkpoints, and the errors that it raises.
#include "../training/scratch_directory.hpp"
#include "sharded_network.hpp"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

namespace kolo::internal::testing_support {
namespace {

using ShardedStateTest = TorchTest;

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
  std::string state = sharded.whole_state(root);
  EXPECT_EQ(state.empty(), rank() != root);
  if (rank() == root) {
    EXPECT_EQ(state, to_bytes(replicated));
  }
  broadcast(state, root);
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
            [&](auto& optimizer) { optimizer.load_whole_state(state); });
    } else {
      go_on(DistributedOptimizer(make_base(again), again.named_parameters(), options),
            [&](auto& optimizer) { from_bytes(state, optimizer); });
    }
    // One process.
    Network alone(9);
    optim::AdamW plain = make_base(alone);
    from_bytes(state, plain);
    assign(alone, saved);
    for (int step = 3; step < 5; ++step) {
      plain.zero_grad();
      ::torch::manual_seed(static_cast<std::uint64_t>(step));
      alone.forward(::torch::randn({4, 3, 6, 6})).pow(2).mean().backward();
      plain.step();
    }
    expect_close(flat(again.parameters()), flat(alone.parameters()), 1e-6);
  }
  EXPECT_THROW(sharded.load_whole_state("?"), InvalidArgument);
  EXPECT_THROW(broadcast_optimizer_state(sharded, 0), InvalidArgument);
}

TEST_F(ShardedStateTest, EachRankWritesItsPartsForAnyNumberOfRanks) {
  const ScratchDirectory scratch;
  std::string folder = (scratch.path() / "state").string();  // rank 0's
  broadcast(folder, 0);
  Network network;
  const auto base = [](Network& of) {
    return optim::Adam(of.parameters(), optim::AdamOptions(0.01).amsgrad(true));
  };
  ShardedOptimizer optimizer(base(network), network.named_parameters());
  EXPECT_THROW(optimizer.load_state(folder), Error);  // there is none
  usual_step(network, optimizer, 0);
  optimizer.save_state(folder);
  usual_step(network, optimizer, 1);
  optimizer.save_state(folder);  // replaces the first
  std::string whole = optimizer.whole_state(0);
  broadcast(whole, 0);

  const ProcessSet fewer = add_process_set(ranks_by(1, std::max(size() - 1, 1)));
  Network other;
  ShardedOptimizer loaded(base(other), other.named_parameters(), {.process_set = fewer});
  Network another;
  ShardedOptimizer expected(base(another), another.named_parameters(), {.process_set = fewer});
  loaded.load_state(folder);
  expected.load_whole_state(whole);
  EXPECT_EQ(to_bytes(loaded), to_bytes(expected));
  barrier();

  // The files of another network, a missing file, and no index.
  ::torch::Tensor w = parameter({1.0, 2.0});
  ShardedOptimizer unlike(optim::Adam({w}, 0.01));
  const auto error = error_of<Error>([&] { unlike.load_state(folder); });
  EXPECT_THAT(error.what(), HasSubstr("that of other parameters"));
  barrier();
  if (rank() == 0)
    for (const auto& file : std::filesystem::directory_iterator(folder))
      if (file.path().filename().string().starts_with("state-00001")) remove(file.path());
  barrier();
  EXPECT_THROW(optimizer.load_state(folder), Error);
  if (rank() == 0) std::filesystem::remove(std::filesystem::path(folder) / "state.json");
  barrier();
  EXPECT_THAT(error_of<Error>([&] { optimizer.load_state(folder); }).what(),
              HasSubstr("no complete state"));
  EXPECT_THROW(optimizer.save_state("/proc/nowhere"), Error);
  usual_step(network, optimizer, 2);
  expect_same_bits_on_all_ranks(network.parameters());
}

TEST_F(ShardedStateTest, OnesOwnPartIsSavedAndLoaded) {
  Network network;
  ShardedOptimizer optimizer(optim::Adam(network.parameters(), 0.01), network.named_parameters());
  usual_step(network, optimizer, 0);
  const std::string part = to_bytes(optimizer);
  const Tensors before = network.parameters();
  Network other(5);
  ShardedOptimizer resumed(optim::Adam(other.parameters(), 0.5), other.named_parameters());
  from_bytes(part, resumed);
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
  std::string first = to_bytes(optimizer);
  broadcast(first, 0);
  if (rank() == 0) {
    from_bytes(first, optimizer);
  } else {
    EXPECT_THAT(error_of<InvalidArgument>([&] { from_bytes(first, optimizer); }).what(),
                HasSubstr("shard 1 of"));
  }
  ::torch::Tensor v = ::torch::ones({8}, f64).set_requires_grad(true);
  optim::Adam plain({v}, 0.01);
  EXPECT_THROW(from_bytes(first, plain), InvalidArgument);
  std::string whole = optimizer.whole_state(0);
  broadcast(whole, 0);
  EXPECT_THROW(from_bytes(whole, optimizer), InvalidArgument);
  optimizer.load_whole_state(whole);
}

TEST_F(ShardedStateTest, ARankThatJoinsIsMissed) {
  if (size() == 1) GTEST_SKIP() << "needs several ranks";
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    usual_step(network, optimizer, 0);
    const Tensors before{flat(network.parameters())};
    if (rank() != size() - 1) {
      const auto error = error_of<Mismatch>([&] { usual_step(network, optimizer, 1); });
      EXPECT_THAT(error.what(), HasSubstr("join"));
      EXPECT_TRUE(same_bits(flat(network.parameters()), before[0]));
    }
    join();
    usual_step(network, optimizer, 2);
    expect_same_bits_on_all_ranks(network.parameters());
  }
}

TEST_F(ShardedStateTest, ALoneSkipIsAMismatch) {
  if (size() == 1) GTEST_SKIP() << "needs several ranks";
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    network.loss(0).backward();
    if (rank() == 0) {
      EXPECT_THROW(optimizer.skip_step(), Mismatch);
    } else {
      EXPECT_THROW(optimizer.step(), Mismatch);
    }
    broadcast_parameters(network, 0);
    usual_step(network, optimizer, 1);
    // Not calling `step` does the same, if all ranks do it.
    optimizer.zero_grad();
    network.loss(2).backward();
    usual_step(network, optimizer, 3);
    expect_same_bits_on_all_ranks(network.parameters());
  }
}

TEST_F(ShardedStateTest, ARankThatGoesOnWithoutAStepGetsMismatch) {
  if (size() == 1) GTEST_SKIP() << "needs several ranks";
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    network.loss(0).backward();
    if (rank() == 0) {
      EXPECT_THROW(network.loss(1).backward(), Mismatch);
    } else {
      EXPECT_THROW(optimizer.step(), Mismatch);
      network.loss(1).backward();
    }
    broadcast_parameters(network, 0);
    usual_step(network, optimizer, 2);
    expect_same_bits_on_all_ranks(network.parameters());
  }
}

TEST_F(ShardedStateTest, GoesOnAfterABackwardThatThrows) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    ::torch::Tensor loss = network.loss(0);
    if (rank() == size() - 1)
      network.hidden->bias.register_hook([](const ::torch::Tensor&) -> ::torch::Tensor {
        throw std::runtime_error("no gradient today");
      });
    network.output->weight.sum().backward();  // reduced before
    EXPECT_ANY_THROW(loss.backward());
    EXPECT_ANY_THROW(network.loss(1).backward());
    network.zero_grad();
    (network.convolution->weight.sum() + network.output->weight.sum()).backward();
    optimizer.step();
    expect_same_bits_on_all_ranks(network.parameters());
  }
}

TEST_F(ShardedStateTest, WorksInAProcessSet) {
  const ProcessSet even = add_process_set(ranks_by(2, size()));
  Network network;
  DistributedOptimizer replicated(optim::Adam(network.parameters(), 0.01),
                                  network.named_parameters(), {.process_set = even});
  Network other;
  ShardedOptimizer sharded(optim::Adam(other.parameters(), 0.01), other.named_parameters(),
                           {.process_set = even});
  for (int step = 0; step < 3; ++step) {
    usual_step(network, replicated, step);
    usual_step(other, sharded, step);
  }
  EXPECT_TRUE(same_bits(flat(network.parameters()), flat(other.parameters())));
}

TEST_F(ShardedStateTest, RefusesWhatItCannotDo) {
  ::torch::Tensor w = parameter({1.0, 2.0});
  EXPECT_THROW(ShardedOptimizer(optim::SGD({w}, 1.0), {.op = ReduceOp::adasum}), InvalidArgument);
  EXPECT_THROW(ShardedOptimizer(optim::SGD({w}, 1.0), {.hook = int8()}), InvalidArgument);
  EXPECT_THROW(ShardedOptimizer(optim::SGD({w}, 1.0), {{"other", parameter({1.0})}}),
               InvalidArgument);
  ::torch::Tensor gaps = ::torch::zeros({4, 2}, f64).narrow(1, 0, 1).set_requires_grad(true);
  const auto error = error_of<InvalidArgument>([&] { ShardedOptimizer(optim::SGD({gaps}, 1.0)); });
  EXPECT_THAT(error.what(), HasSubstr("without gaps"));
  DistributedOptimizer distributed(optim::SGD({w}, 1.0));
  const auto shared = error_of<InvalidArgument>([&] { ShardedOptimizer(optim::SGD({w}, 1.0)); });
  EXPECT_THAT(shared.what(), HasSubstr("cannot share a parameter"));
  if (size() > 1) {  // the ranks differ in the sharding
    ::torch::Tensor v = parameter({1.0, 2.0});
    const Sharding mine = rank() == 0 ? Sharding::state : Sharding::state_and_gradients;
    EXPECT_THROW(ShardedOptimizer(optim::SGD({v}, 1.0), {}, mine), Mismatch);
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
