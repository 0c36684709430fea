// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer: the same training as with DistributedOptimizer, with parts of its memory.
#include "../training/scratch_directory.hpp"
#include "support.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <utility>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;
using Tensors = std::vector<::torch::Tensor>;

// Parameters of odd sizes, one smaller than the number of ranks, and one in another memory order.
struct Network : nn::Module {
  explicit Network(std::uint64_t seed = 1) {
    ::torch::manual_seed(seed);
    convolution = register_module("convolution", nn::Conv2d(3, 5, 3));
    hidden = register_module("hidden", nn::Linear(5, 7));
    output = register_module("output", nn::Linear(7, 1));
    convolution->weight.set_data(convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }

  ::torch::Tensor forward(const ::torch::Tensor& images) {
    const ::torch::Tensor features = convolution->forward(images).relu().mean({2, 3});
    return output->forward(hidden->forward(features).tanh());
  }

  // Of this rank's data for a step.
  ::torch::Tensor loss(int step) {
    ::torch::manual_seed(static_cast<std::uint64_t>(1000 * step + rank()));
    const ::torch::Tensor images = ::torch::randn({4, 3, 6, 6});
    return (forward(images) - ::torch::randn({4, 1})).pow(2).mean();
  }

  nn::Conv2d convolution{nullptr};
  nn::Linear hidden{nullptr};
  nn::Linear output{nullptr};
};

template <typename Optimizer>
void usual_step(Network& network, Optimizer& optimizer, int step) {
  optimizer.zero_grad();
  network.loss(step).backward();
  optimizer.step();
}

// Runs the same training with each kind of optimizer; all give the same bits, after each step.
// `run(network, optimizer, step)` is one step of it.
template <typename Base, typename Options, typename Run>
void expect_same_training(const Options& base, const Run& run,
                          const DistributedOptimizerOptions& options = {}, int steps = 6) {
  Network network;
  DistributedOptimizer replicated(Base(network.parameters(), base), network.named_parameters(),
                                  options);
  std::vector<Tensors> expected;
  for (int step = 0; step < steps; ++step) {
    run(network, replicated, step);
    expected.emplace_back();
    for (const auto& parameter : network.parameters())
      expected.back().push_back(parameter.detach().clone());
  }
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    SCOPED_TRACE(sharding == Sharding::state ? "state" : "state and gradients");
    Network other;
    ShardedOptimizer sharded(Base(other.parameters(), base), other.named_parameters(), options,
                             sharding);
    for (int step = 0; step < steps; ++step) {
      run(other, sharded, step);
      const Tensors now = other.parameters();
      ASSERT_TRUE(same_bits(flat(now), flat(expected[static_cast<std::size_t>(step)])))
          << "after step " << step;
    }
    expect_same_bits_on_all_ranks(other.parameters());
  }
}

using ShardedTest = TorchTest;

// Each `stride`th rank, below `end`.
std::vector<int> ranks_by(int stride, int end) {
  std::vector<int> ranks;
  for (int rank = 0; rank < end; rank += stride) ranks.push_back(rank);
  return ranks;
}

constexpr auto train_usually = [](Network& network, auto& optimizer, int step) {
  usual_step(network, optimizer, step);
};

TEST_F(ShardedTest, TrainsAsTheReplicatedOptimizer) {
  expect_same_training<optim::SGD>(optim::SGDOptions(0.1), train_usually);
  expect_same_training<optim::SGD>(
      optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01), train_usually);
  expect_same_training<optim::Adam>(optim::AdamOptions(0.01).weight_decay(0.1), train_usually);
  expect_same_training<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true), train_usually);
  expect_same_training<optim::AdamW>(optim::AdamWOptions(0.01), train_usually, {}, 20);
  expect_same_training<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.5).centered(true),
                                       train_usually);
  // Its constructor makes state, which is divided.
  expect_same_training<optim::Adagrad>(optim::AdagradOptions(0.1).initial_accumulator_value(0.5),
                                       train_usually);
}

TEST_F(ShardedTest, TakesTheOptionsOfTheReplicatedOptimizer) {
  const auto check = [](const DistributedOptimizerOptions& options) {
    expect_same_training<optim::Adam>(optim::AdamOptions(0.01), train_usually, options, 3);
  };
  check({.op = ReduceOp::sum});
  check({.compression = Compression::bf16});
  check({.compression = Compression::fp16});
  check({.gradient_predivide_factor = 2.0});
  check({.groups = {{"hidden.weight", "output.bias"}, {"hidden.bias"}}});
  check({.num_groups = 2});
  check({.num_groups = 1});
}

TEST_F(ShardedTest, AccumulatesAsTheReplicatedOptimizer) {
  const auto accumulate = [](Network& network, auto& optimizer, int step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < (step == 1 ? 2 : 3); ++pass) network.loss(3 * step + pass).backward();
    optimizer.step();
  };
  const auto base = optim::AdamOptions(0.01);
  expect_same_training<optim::Adam>(base, accumulate);  // each pass is reduced
  expect_same_training<optim::Adam>(base, accumulate, {.backward_passes_per_step = 3});
  expect_same_training<optim::Adam>(
      base, accumulate, {.backward_passes_per_step = 3, .accumulation = Accumulation::mean});
  expect_same_training<optim::Adam>(base, [](Network& network, auto& optimizer, int step) {
    optimizer.zero_grad();
    {
      const auto local = optimizer.no_sync();
      network.loss(2 * step).backward();
    }
    if (step != 2) network.loss(2 * step + 1).backward();
    optimizer.step();
  });
}

TEST_F(ShardedTest, FollowsAModuleThatZeroesItsGradients) {
  for (const bool to_none : {true, false}) {
    SCOPED_TRACE(to_none ? "to none" : "to zero");
    expect_same_training<optim::SGD>(
        optim::SGDOptions(0.1).momentum(0.9), [&](Network& network, auto& optimizer, int step) {
          network.zero_grad(to_none);
          network.loss(2 * step).backward();
          if (step == 2) network.zero_grad(to_none);  // nothing is left of the first pass
          if (step == 3) {
            const auto local = optimizer.no_sync();
            network.zero_grad(to_none);
            network.loss(2 * step + 1).backward();
            network.zero_grad(to_none);
          }
          if (step != 4) network.loss(2 * step + 1).backward();
          if (step == 4) network.zero_grad(to_none);
          optimizer.step();
        });
  }
}

TEST_F(ShardedTest, AccumulatesOverStepsWithoutZeroGrad) {
  expect_same_training<optim::SGD>(optim::SGDOptions(0.1),
                                   [](Network& network, auto& optimizer, int step) {
                                     network.loss(step).backward();
                                     optimizer.step();
                                   });
}

TEST_F(ShardedTest, ParametersThatOnlySomeRanksUse) {
  const auto base = optim::SGDOptions(0.1).weight_decay(0.1);
  expect_same_training<optim::SGD>(base, [](Network& network, auto& optimizer, int step) {
    optimizer.zero_grad();
    ::torch::Tensor loss = network.convolution->weight.pow(2).sum() * (rank() + 1);
    if (rank() == step % size()) loss = loss + network.hidden->weight.sum();
    loss.backward();
    optimizer.step();  // `output` is used by none, and does not decay
  });
  // A rank without data steps without a pass.
  expect_same_training<optim::SGD>(base, [](Network& network, auto& optimizer, int step) {
    optimizer.zero_grad();
    if (rank() != size() - 1 || size() == 1) network.loss(step).backward();
    optimizer.step();
  });
}

TEST_F(ShardedTest, TakesClosuresAndTiedAndSparseAndFrozenParameters) {
  expect_same_training<optim::SGD>(optim::SGDOptions(0.1),
                                   [](Network& network, auto& optimizer, int step) {
                                     const auto loss = optimizer.step([&] {
                                       optimizer.zero_grad();
                                       ::torch::Tensor own = network.loss(step);
                                       own.backward();
                                       return own;
                                     });
                                     EXPECT_TRUE(loss.defined());
                                   });
  expect_same_training<optim::Adam>(optim::AdamOptions(0.1),
                                    [](Network& network, auto& optimizer, int step) {
                                      network.hidden->weight.set_requires_grad(step % 2 == 0);
                                      usual_step(network, optimizer, step);
                                    });
  const auto train = [](auto&& make) {
    ::torch::manual_seed(3);
    nn::Embedding embedding(nn::EmbeddingOptions(9, 3).sparse(true));
    const ::torch::Tensor tied = embedding->weight;
    auto optimizer = make(tied);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const auto words = ::torch::tensor({rank() % 9, (rank() + step) % 9});
      (embedding->forward(words).pow(2).sum() * (rank() + 1)).backward();
      optimizer.step();
    }
    return tied.detach().clone();
  };
  const auto replicated = train([](const ::torch::Tensor& w) {
    return DistributedOptimizer(optim::SGD({w, w}, 0.1), {{"in", w}, {"out", w}},
                                {.sparse_as_dense = true});
  });
  const auto sharded = train([](const ::torch::Tensor& w) {
    return ShardedOptimizer(optim::SGD({w, w}, 0.1), {{"in", w}, {"out", w}});
  });
  EXPECT_TRUE(same_bits(sharded, replicated));
}

TEST_F(ShardedTest, ParametersMayBeAddedAndReplacedButNotConverted) {
  expect_same_training<optim::Adam>(optim::AdamOptions(0.01),
                                    [](Network& network, auto& optimizer, int step) {
                                      if (step == 2) {  // as torch::load does
                                        for (::torch::Tensor& parameter : network.parameters())
                                          parameter.set_data(parameter.detach() * 0.5);
                                      }
                                      usual_step(network, optimizer, step);
                                    });
  ::torch::Tensor w = parameter({1.0, 2.0, 3.0});
  ::torch::Tensor added = parameter({4.0, 5.0});
  ShardedOptimizer optimizer(optim::SGD({w}, 1.0));
  optimizer.add_param_group(optim::OptimizerParamGroup({added}));
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    ((w.sum() + added.sum()) * (rank() + 1)).backward();
    optimizer.step();
  }
  expect_close(w, values({1.0, 2.0, 3.0}) - 2.0 * mean_rank());
  expect_close(added, values({4.0, 5.0}) - 2.0 * mean_rank());
  w.set_data(w.detach().to(::torch::kFloat32));
  const auto error = error_of<InvalidArgument>([&] { optimizer.step(); });
  EXPECT_THAT(error.what(), HasSubstr("'0.0' is f32 [3] now"));
}

TEST_F(ShardedTest, KeepsPartsOfTheState) {
  Network network;
  std::int64_t elements = 0;
  for (const auto& parameter : network.parameters()) elements += parameter.numel();
  ShardedOptimizer optimizer(optim::Adam(network.parameters(), 0.01));
  usual_step(network, optimizer, 0);
  std::int64_t mine = 0;
  for (auto& [key, state] : optimizer.state())
    mine += dynamic_cast<optim::AdamParamState&>(*state).exp_avg().numel();
  std::int64_t all = mine;
  allreduce(all, {.op = ReduceOp::sum});
  EXPECT_EQ(all, elements);
  EXPECT_LE(mine, elements / size() + static_cast<std::int64_t>(network.parameters().size()));
  std::size_t bytes = 0;  // of gradients
  for (const auto& parameter : network.parameters()) {
    EXPECT_TRUE(parameter.grad().isnan().all().item<bool>());
    bytes += parameter.grad().storage().nbytes();
  }
  EXPECT_EQ(bytes, network.parameters().size() * sizeof(float));
}

TEST_F(ShardedTest, ClipsByTheJointNorm) {
  for (const double type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    Network whole;
    DistributedOptimizer replicated(optim::SGD(whole.parameters(), 0.1), whole.named_parameters());
    whole.loss(0).backward();
    const double expected = clip_grad_norm(replicated, 0.01, {.norm_type = type});
    replicated.step();
    for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
      Network parts;
      ShardedOptimizer sharded(optim::SGD(parts.parameters(), 0.1), parts.named_parameters(), {},
                               sharding);
      parts.loss(0).backward();
      const double norm = clip_grad_norm(sharded, 0.01, {.norm_type = type});
      EXPECT_NEAR(norm, expected, 1e-6 * expected);
      sharded.step();
      expect_close(flat(parts.parameters()), flat(whole.parameters()), 1e-8);
      expect_same_bits_on_all_ranks(parts.parameters());
    }
  }
  ::torch::Tensor w = parameter({1.0});
  ShardedOptimizer optimizer(optim::SGD({w}, 1.0));
  EXPECT_THROW(clip_grad_norm(optimizer, 0.0), InvalidArgument);
  backward(w, std::numeric_limits<double>::infinity());
  EXPECT_THROW(clip_grad_norm(optimizer, 1.0, {.refuse_nonfinite = true}), Error);
  optimizer.skip_step();
}

TEST_F(ShardedTest, AllRanksSkipAStepThatOverflowsInOnePart) {
  const auto train = [](Network& network, auto& optimizer, GradScaler& scaler) {
    std::vector<bool> stepped;
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      ::torch::Tensor loss = network.loss(step);
      // Only the first element of one parameter, which is in rank 0's part.
      if (step == 2)
        loss = loss + network.hidden->weight.flatten()[0] * std::numeric_limits<float>::infinity();
      scaler.scale(loss).backward();
      stepped.push_back(scaler.step(optimizer));
      scaler.update();
    }
    return stepped;
  };
  Network whole;
  DistributedOptimizer replicated(optim::Adam(whole.parameters(), 0.01), whole.named_parameters());
  GradScaler scaler;
  EXPECT_THAT(train(whole, replicated, scaler),
              testing::ElementsAre(true, true, false, true, true));
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network parts;
    ShardedOptimizer sharded(optim::Adam(parts.parameters(), 0.01), parts.named_parameters(), {},
                             sharding);
    GradScaler other;
    EXPECT_THAT(train(parts, sharded, other), testing::ElementsAre(true, true, false, true, true));
    EXPECT_EQ(other.loss_scale(), scaler.loss_scale());
    EXPECT_TRUE(same_bits(flat(parts.parameters()), flat(whole.parameters())));
  }
}

void assign(Network& network, const Tensors& values) {
  const ::torch::NoGradGuard no_grad;
  const Tensors parameters = network.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ::torch::Tensor parameter = parameters[i];
    parameter.copy_(values[i]);
  }
}

TEST_F(ShardedTest, StateMovesBetweenKindsAndNumbersOfRanks) {
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

TEST_F(ShardedTest, EachRankWritesItsPartsForAnyNumberOfRanks) {
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
  EXPECT_THAT(error.what(), HasSubstr("state of other parameters"));
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

TEST_F(ShardedTest, OnesOwnPartIsSavedAndLoaded) {
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

TEST_F(ShardedTest, ARankThatJoinsIsMissed) {
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

TEST_F(ShardedTest, ALoneSkipIsAMismatch) {
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

TEST_F(ShardedTest, ARankThatGoesOnWithoutAStepGetsMismatch) {
  if (size() == 1) GTEST_SKIP() << "needs several ranks";
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    network.loss(0).backward();
    if (rank() != 0) {
      EXPECT_THROW(optimizer.step(), Mismatch);
    }
    EXPECT_THROW(network.loss(1).backward(), Mismatch);
  }
}

TEST_F(ShardedTest, GoesOnAfterABackwardThatThrows) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    ::torch::Tensor loss = network.loss(0);
    if (rank() == size() - 1)
      network.hidden->bias.register_hook([](const ::torch::Tensor&) -> ::torch::Tensor {
        throw std::runtime_error("no gradient today");
      });
    EXPECT_ANY_THROW(loss.backward());
    EXPECT_ANY_THROW(network.loss(1).backward());
    optimizer.zero_grad();
    network.convolution->weight.sum().backward();
    optimizer.step();
    expect_same_bits_on_all_ranks(network.parameters());
  }
}

TEST_F(ShardedTest, WorksInAProcessSet) {
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

TEST_F(ShardedTest, RefusesWhatItCannotDo) {
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
