// SPDX-License-Identifier: Apache-2.0
// FullySharded: the same training as with DistributedOptimizer, with 1/n of the parameters.
#include "fully_sharded_network.hpp"

namespace kolo::internal::testing_support {
namespace {

using FullyShardedTest = TorchTest;

TEST_F(FullyShardedTest, TrainsAsTheReplicatedModel) {
  const auto check = [](auto kind, const auto& options) {
    using Base = typename decltype(kind)::type;
    expect_same_state(train_sharded<Base>(options, usual, 20),
                      train_replicated<Base>(options, usual, 20));
  };
  check(std::type_identity<optim::SGD>(), optim::SGDOptions(0.1).momentum(0.9));
  check(std::type_identity<optim::AdamW>(), optim::AdamWOptions(0.01));
  check(std::type_identity<optim::Adagrad>(), optim::AdagradOptions(0.1));
}

TEST_F(FullyShardedTest, OptionsChangeNoBits) {
  const auto options = optim::AdamWOptions(0.01);
  const StateDict expected = train_replicated<optim::AdamW>(options, usual, 5);
  for (const bool reshard : {true, false})
    for (const int ahead : {0, 1, 3, 100})
      expect_same_state(
          train_sharded<optim::AdamW>(options, usual, 5,
                                      {.reshard_after_forward = reshard, .units_ahead = ahead}),
          expected);
}

TEST_F(FullyShardedTest, AccumulatesPassesAndForwards) {
  const auto options = optim::AdamWOptions(0.01);
  const auto check = [&](const auto& step) {
    expect_same_state(train_sharded<optim::AdamW>(options, step, 4),
                      train_replicated<optim::AdamW>(options, step, 4));
  };
  check([](auto& model, auto& gradients, auto& optimizer, int step) {
    optimizer.zero_grad();
    {
      const auto local = gradients.no_sync();
      loss_of(model, 3 * step).backward();
      loss_of(model, 3 * step + 1).backward();
    }
    loss_of(model, 3 * step + 2).backward();
    optimizer.step();
  });
  check([](auto& model, auto& /*gradients*/, auto& optimizer, int step) {
    optimizer.zero_grad();
    const Tensor first = loss_of(model, 2 * step);
    (first + loss_of(model, 2 * step + 1)).backward();
    optimizer.step();
  });
  check([](auto& model, auto& /*gradients*/, auto& optimizer, int step) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(model, step);
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    optimizer.step();
  });
  check([](auto& model, auto& /*gradients*/, auto& optimizer, int step) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(model, step);
    {
      const ::torch::NoGradGuard no_grad;
      (void)loss_of(model, 100 + step);  // an evaluation in between
    }
    (void)loss_of(model, 200 + step);  // a forward without a backward
    loss.backward();
    optimizer.step();
  });
}

// Several copies, each divided among some ranks. Sums are made in another order.
/// Autograd gives both parameters the same tensor as their gradient.
struct SumImpl : nn::Module {
  Tensor a = register_parameter("a", ::torch::ones({64}));
  Tensor b = register_parameter("b", ::torch::ones({64}));
  Tensor forward(const Tensor& input) { return (a + b) * input; }
};
TORCH_MODULE(Sum);

TEST_F(FullyShardedTest, ParametersMayShareAGradient) {
  Sharded<Sum> model;
  FullySharded sharded(model);
  for (int pass = 0; pass < 3; ++pass) model->forward(::torch::ones({64})).sum().backward();
  for (const auto& [name, shard] : sharded.named_parameters())
    EXPECT_TRUE(shard.grad().eq(3).all().item<bool>()) << name << ": " << shard.grad();
}

/// Its forward writes to the weight.
struct BoundedImpl : nn::Module {
  nn::Embedding rows =
      register_module("rows", nn::Embedding(nn::EmbeddingOptions(64, 8).max_norm(0.5)));
  Tensor forward(const Tensor& tokens) { return rows(tokens); }
};
TORCH_MODULE(Bounded);

TEST_F(FullyShardedTest, CopiesStayEqualWhenForwardWritesToParameters) {
  for (const int ranks_per_copy : {0, 1, 2}) {
    if (ranks_per_copy > 0 && size() % ranks_per_copy != 0) continue;
    FullyShardedOptions options;
    if (ranks_per_copy > 0) {
      const HybridSets sets = add_hybrid_sets(ranks_per_copy);
      options.process_set = sets.process_set;
      options.replicas = sets.replicas;
    }
    ::torch::manual_seed(5);
    Sharded<Bounded> model;
    FullySharded sharded(model, options);
    optim::SGD optimizer(sharded.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      model->forward((::torch::arange(0, 16) * (rank() + 2) + step).remainder(64))
          .square()
          .sum()
          .backward();
      optimizer.step();
    }
    const StateDict whole = sharded.full_state();
    expect_same_bits_on_all_ranks({to_tensor(whole.tensors.at("rows.weight"))});
  }
}

TEST_F(FullyShardedTest, CopiesOfAModelStayEqual) {
  const auto options = optim::SGDOptions(0.1).momentum(0.9);
  const StateDict expected = train_replicated<optim::SGD>(options, usual, 5);
  for (int per_copy = 1; per_copy <= size(); ++per_copy) {
    if (size() % per_copy != 0) {
      EXPECT_THROW((void)add_hybrid_sets(per_copy), InvalidArgument);
      continue;
    }
    const HybridSets sets = add_hybrid_sets(per_copy);
    EXPECT_EQ(sets.process_set.size() * sets.replicas.size(), size());
    ::torch::manual_seed(
        static_cast<std::uint64_t>(rank()));  // the first copy gives the others its values
    auto model = rank() < per_copy ? make_net<ShardedNet>() : ShardedNet(7);
    FullySharded sharded(model, {.process_set = sets.process_set, .replicas = sets.replicas});
    optim::SGD optimizer(sharded.parameters(), options);
    for (int step = 0; step < 5; ++step) {
      if (step == 3 && size() > 1) {  // fails in all copies
        optimizer.zero_grad();
        if (rank() == size() - 1) {
          EXPECT_THROW(Throw::apply(loss_of(model, step)).backward(), std::runtime_error);
        } else {
          const auto error = error_of<BackwardFailed>([&] { loss_of(model, step).backward(); });
          EXPECT_EQ(error.ranks(), std::vector<int>{size() - 1});
        }
      }
      usual(model, sharded, optimizer, step);
    }
    const StateDict whole = sharded.full_state();
    for (const auto& [name, tensor] : expected.tensors)
      expect_close(to_tensor(whole.tensors.at(name)), to_tensor(tensor), 1e-5);
    std::vector<Tensor> tensors;
    for (const auto& [name, tensor] : whole.tensors) tensors.push_back(to_tensor(tensor));
    expect_same_bits_on_all_ranks(tensors);
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
