// SPDX-License-Identifier: Apache-2.0
// The state of a fully sharded training: whole, in shards, and on other numbers of ranks.
#include "fully_sharded_network.hpp"

#include <numeric>

namespace kolo::internal::testing_support {
namespace {

using FullyShardedState = TorchTest;

// The states that all ranks have saved, as a checkpoint gives them.
std::vector<StateView> of_all_ranks(const StateView& own) {
  std::vector<StateView> all;
  for (const std::string& bytes : allgather(to_safetensors(own.copy())))
    all.emplace_back(from_safetensors(bytes));
  return all;
}

struct Training {
  explicit Training(const ProcessSet& set = {})
      : sharded(model, {.process_set = set}),
        optimizer(sharded.parameters(), optim::AdamWOptions(0.01).amsgrad(true)) {}

  void steps(int from, int to) {
    for (int step = from; step < to; ++step) usual(model, sharded, optimizer, step);
  }

  ShardedNet model = make_net<ShardedNet>();
  FullySharded sharded;
  optim::AdamW optimizer;
};

struct Replicated {
  void steps(int from, int to) {
    for (int step = from; step < to; ++step) usual(model, optimizer, optimizer, step);
  }

  Net model = make_net<Net>();
  DistributedOptimizer<optim::AdamW> optimizer{
      optim::AdamW(model->parameters(), optim::AdamWOptions(0.01).amsgrad(true)),
      model->named_parameters()};
};

TEST_F(FullyShardedState, WholeStateIsThatOfTheReplicatedTraining) {
  Training training;
  training.steps(0, 3);
  Replicated replicated;
  replicated.steps(0, 3);
  const StateDict expected = state(replicated.optimizer);
  const StateDict whole = training.sharded.full_state(training.optimizer, 0);
  if (rank() == 0) {
    expect_same_state(whole, expected);
    EXPECT_EQ(whole.metadata, expected.metadata);
  } else {
    EXPECT_TRUE(whole.empty());
  }

  Training resumed;
  resumed.sharded.load_full_state(state(*replicated.model));
  resumed.sharded.load_full_state(expected, resumed.optimizer);
  resumed.steps(3, 5);
  replicated.steps(3, 5);
  expect_same_state(resumed.sharded.full_state(), state(*replicated.model));
}

TEST_F(FullyShardedState, ShardsLoadOnAnyNumberOfRanks) {
  Training training;
  training.steps(0, 3);
  const std::vector<StateView> model = of_all_ranks(training.sharded.state_view());
  const std::vector<StateView> optimizer = of_all_ranks(state_view(training.optimizer));
  const StateDict expected = training.sharded.full_state();
  const StateDict expected_state = training.sharded.full_state(training.optimizer, 0);
  for (int count = 1; count <= size(); ++count) {
    std::vector<int> members(static_cast<std::size_t>(count));
    std::iota(members.begin(), members.end(), 0);
    const ProcessSet set = add_process_set(members);
    if (rank() >= count) continue;
    Training other(set);
    other.sharded.load_sharded_state(model);
    other.sharded.load_sharded_state(optimizer, other.optimizer);
    expect_same_state(other.sharded.full_state(), expected);
    const StateDict other_state = other.sharded.full_state(other.optimizer, 0);
    if (rank() == 0) expect_same_state(other_state, expected_state);
  }
}

TEST_F(FullyShardedState, AStateOfOtherRanksOrParametersIsRefused) {
  Training training;
  training.steps(0, 1);
  StateDict saved = state(training.optimizer);
  saved.metadata["kolo.shard"] = "1 of 7";
  EXPECT_THROW(load_state(training.optimizer, saved), InvalidArgument);
  std::vector<StateView> shards = of_all_ranks(training.sharded.state_view());
  shards.pop_back();
  const auto error = error_of<Error>([&] { training.sharded.load_sharded_state(shards); });
  EXPECT_THAT(error.what(), testing::HasSubstr(size() == 1 ? "has no shards" : "not complete"));
  optim::SGD other({::torch::ones({3}).set_requires_grad(true)}, 0.1);
  other.param_groups()[0].params()[0].mutable_grad() = ::torch::ones({3});
  EXPECT_THROW(training.sharded.load_full_state(state(other), other), InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::testing_support
