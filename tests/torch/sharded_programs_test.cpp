// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer in programs: with a second optimizer, batch statistics, scaled losses, and
// forked children.
#include "sharded_network.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <limits>
#include <stdexcept>

namespace kolo::internal::testing_support {
namespace {

using ShardedProgramsTest = TorchTest;

::torch::Tensor noise(int step, std::vector<std::int64_t> shape) {
  ::torch::manual_seed(static_cast<std::uint64_t>(1000 * step + rank()));
  return ::torch::randn(shape);
}

// As PyTorch's dcgan.cpp: the discriminator has two passes before its step, the generator's pass
// runs through it, and modules are zeroed, not optimizers.
template <typename Wrap>
Tensors train_gan(const Wrap& wrap, bool to_none) {
  ::torch::manual_seed(5);
  nn::Sequential generator(nn::Linear(3, 9), nn::BatchNorm1d(9), nn::Tanh(), nn::Linear(9, 5));
  nn::Sequential discriminator(nn::Linear(5, 7), nn::Tanh(), nn::Linear(7, 1), nn::Sigmoid());
  const auto options = optim::AdamOptions(0.01).betas(std::make_tuple(0.5, 0.9));
  auto optimizer_g =
      wrap(optim::Adam(generator->parameters(), options), generator->named_parameters());
  auto optimizer_d =
      wrap(optim::Adam(discriminator->parameters(), options), discriminator->named_parameters());
  Tensors results;
  for (int step = 0; step < 5; ++step) {
    discriminator->zero_grad(to_none);
    discriminator->forward(noise(step, {4, 5})).log().mean().neg().backward();
    const ::torch::Tensor fake = generator->forward(noise(step, {4, 3}));
    (1.0 - discriminator->forward(fake.detach())).log().mean().neg().backward();
    optimizer_d.step();
    generator->zero_grad(to_none);
    discriminator->forward(fake).log().mean().neg().backward();
    optimizer_g.step();
    results.push_back(flat(generator->parameters()));
    results.push_back(flat(discriminator->parameters()));
  }
  expect_same_bits_on_all_ranks(results);
  return results;
}

TEST_F(ShardedProgramsTest, AGanOfTwoShardedOptimizers) {
  for (const bool to_none : {true, false}) {
    const auto train = [&](const auto& wrap) { return train_gan(wrap, to_none); };
    expect_same_results(train);
    expect_same_results(train, {.num_groups = 2});
  }
}

// The places of the parameters behind it are others then.
TEST_F(ShardedProgramsTest, AParameterBehindAnErasedOneIsStillWhole) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    std::vector<::torch::Tensor> parameters{parameter({1.0, 1.0}), parameter({1.0, 1.0, 1.0}),
                                            parameter({1.0, 1.0, 1.0, 1.0, 1.0})};
    ShardedOptimizer optimizer(
        optim::SGD(parameters, 1.0),
        {{"first", parameters[0]}, {"second", parameters[1]}, {"third", parameters[2]}}, {},
        sharding);
    const auto step = [&] {
      optimizer.zero_grad();
      ::torch::Tensor loss = ::torch::zeros({}, f64);
      for (const ::torch::Tensor& one : parameters) loss = loss + (one * (rank() + 1)).sum();
      loss.backward();
      optimizer.step();
    };
    step();
    auto& held = optimizer.param_groups()[0].params();
    held.erase(held.begin());
    parameters.erase(parameters.begin());
    parameters.push_back(parameter({1.0}));
    held.push_back(parameters.back());
    for (int i = 0; i < 2; ++i) step();
    expect_same_bits_on_all_ranks(parameters);
    expect_close(parameters[1], ::torch::full({5}, 1.0 - 3 * mean_rank(), f64));
  }
}

// As `zero_grad` of LibTorch 2 does, which is not virtual. `second` has gradients in some steps
// only, on one rank.
TEST_F(ShardedProgramsTest, GradientsMayBeRemovedByWayOfTheBaseClass) {
  expect_same_results([](const auto& wrap) {
    ::torch::manual_seed(9);
    nn::Sequential model(nn::Linear(3, 8), nn::Tanh(), nn::Linear(8, 1), nn::Linear(3, 1));
    auto optimizer = wrap(optim::Adam(model->parameters(), 0.01), model->named_parameters());
    optim::Optimizer& base = optimizer;
    const auto second = model[3]->template as<nn::Linear>();
    Tensors results;
    for (int step = 0; step < 6; ++step) {
      for (optim::OptimizerParamGroup& group : base.param_groups())
        for (::torch::Tensor& parameter : group.params()) parameter.mutable_grad().reset();
      const ::torch::Tensor in = noise(step, {6, 3});
      ::torch::Tensor out = model[2]->template as<nn::Linear>()->forward(
          model[0]->template as<nn::Linear>()->forward(in).tanh());
      if (step % 2 == 0 && step % size() == rank()) out = out + second->forward(in);
      out.pow(2).mean().backward();
      optimizer.step();
      results.push_back(flat(model->parameters()));
    }
    return results;
  });
}

TEST_F(ShardedProgramsTest, BuffersAreBroadcastBeforeEachForward) {
  expect_same_results([](const auto& wrap) {
    ::torch::manual_seed(6);
    nn::Sequential model(nn::Linear(3, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, 1));
    auto optimizer = wrap(optim::AdamW(model->parameters(), 0.01), model->named_parameters());
    Tensors results;
    for (int step = 0; step < 6; ++step) {
      broadcast_buffers(*model, step % size());
      optimizer.zero_grad();
      model->forward(noise(step, {6, 3})).pow(2).mean().backward();
      optimizer.step();
      results.push_back(flat(model->parameters()));
      for (const ::torch::Tensor& buffer : model->buffers()) results.push_back(buffer.clone());
    }
    broadcast_buffers(*model, size() - 1);
    for (const ::torch::Tensor& buffer : model->buffers()) expect_same_bits_on_all_ranks({buffer});
    return results;
  });
}

// Steps of two passes. The first stays on this rank, and in some steps it is the only one.
// Overflows are in one element of one rank: of a pass on that rank, of one that the next reduces,
// and of one that reduces.
template <typename Optimizer, typename Step>
Tensors train_scaled(Network& network, Optimizer& optimizer, bool guarded,
                     const Step& scaled_step) {
  GradScaler scaler;
  Tensors results;
  std::vector<bool> stepped;
  const auto pass = [&](int number, bool overflows) {
    ::torch::Tensor loss = network.loss(number);
    if (overflows && rank() == size() - 1)
      loss = loss + network.hidden->weight.flatten()[0] * std::numeric_limits<float>::infinity();
    scaler.scale(loss).backward();
  };
  for (int step = 0; step < 7; ++step) {
    optimizer.zero_grad();
    {
      std::vector<NoSync> guards;
      if (guarded) guards.push_back(optimizer.no_sync());
      pass(2 * step, step == 2 || step == 3);
    }
    if (step != 1 && step != 2) pass(2 * step + 1, step == 5);
    stepped.push_back(scaled_step(scaler, optimizer));
    scaler.update();
    results.push_back(flat(network.parameters()));
    results.push_back(::torch::tensor(scaler.loss_scale()));
  }
  EXPECT_THAT(stepped, testing::ElementsAre(true, true, false, false, true, false, true));
  return results;
}

// The scaler may get the optimizer as its base class.
TEST_F(ShardedProgramsTest, AllRanksSkipStepsOfPassesThatAccumulate) {
  const auto check = [](const auto& scaled_step) {
    for (const int passes : {1, 2}) {
      expect_same_results(
          [&](const auto& wrap) {
            Network network;
            auto optimizer =
                wrap(optim::Adam(network.parameters(), 0.01), network.named_parameters());
            return train_scaled(network, optimizer, /*guarded=*/passes == 1, scaled_step);
          },
          {.backward_passes_per_step = passes});
    }
  };
  check([](GradScaler& scaler, auto& optimizer) { return scaler.step(optimizer); });
  check([](GradScaler& scaler, optim::Optimizer& optimizer) {
    scaler.unscale(optimizer);
    return scaler.step(optimizer);
  });
}

// Runs in a child: what it may do with what it has inherited.
template <typename Optimizer>
void use_in_child(Optimizer& optimizer) {
  if constexpr (requires { optimizer.full_state(0); }) {
    const auto refusal = [](const auto& call) {
      return std::string(error_of<InvalidArgument>(call).what());
    };
    EXPECT_THAT(refusal([&] { optimizer.step(); }), HasSubstr("fork"));
    EXPECT_THAT(refusal([&] { (void)optimizer.full_state(0); }), HasSubstr("fork"));
  }
  optimizer.zero_grad();
  const Optimizer dies_here(std::move(optimizer));
}

[[noreturn]] void end_child() { ::_exit(testing::Test::HasFailure() ? 1 : 0); }

template <typename Optimizer>
void fork_child(Optimizer& optimizer) {
  const pid_t child = ::fork();
  if (child == 0) {
    use_in_child(optimizer);
    end_child();
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "of the child";
}

TEST_F(ShardedProgramsTest, AForkedChildDoesNotDisturbTheTraining) {
  expect_same_results([](const auto& wrap) {
    Network network;
    auto optimizer = wrap(optim::Adam(network.parameters(), 0.01), network.named_parameters());
    Tensors results;
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      {
        const auto local = optimizer.no_sync();
        network.loss(2 * step).backward();
      }
      if (step == 0) fork_child(optimizer);
      network.loss(2 * step + 1).backward();
      if (step == 1) fork_child(optimizer);
      optimizer.step();
      results.push_back(flat(network.parameters()));
    }
    return results;
  });
}

// While gradients of the last layer are reduced.
TEST_F(ShardedProgramsTest, AChildThatIsForkedDuringBackwardDoesNotDisturbTheTraining) {
  expect_same_results([](const auto& wrap) {
    Network network;
    auto optimizer = wrap(optim::Adam(network.parameters(), 0.01), network.named_parameters());
    pid_t child = -1;
    network.hidden->weight.register_hook([&](const ::torch::Tensor& gradient) {
      child = ::fork();
      if (child == 0) throw std::runtime_error("in the child");
      return gradient;
    });
    Tensors results;
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      try {
        network.loss(step).backward();
      } catch (const std::runtime_error&) {
        if (child != 0) throw;
        use_in_child(optimizer);
        end_child();
      }
      int status = -1;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0) << "of the child";
      optimizer.step();
      results.push_back(flat(network.parameters()));
    }
    return results;
  });
}

}  // namespace
}  // namespace kolo::internal::testing_support
