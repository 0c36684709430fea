// SPDX-License-Identifier: Apache-2.0
// Training on N ranks computes what one process computes on the whole batch.
#include "../support/world.hpp"
#include "support.hpp"

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing_support::backward;  // beside the function for networks below

constexpr std::int64_t batch = 24;  // divided by 1, 2, 3 and 4 ranks

nn::Sequential make_network(::torch::ScalarType type) {
  ::torch::manual_seed(7);
  nn::Sequential network(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)), nn::ReLU(),
                         nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(4, 6, 3)), nn::ReLU(),
                         nn::Flatten(), nn::Linear(24, 5));
  network->to(type);
  return network;
}

struct Batch {
  ::torch::Tensor images;
  ::torch::Tensor labels;
};

// Equal on all ranks, and different in each step.
Batch global_batch(int step, ::torch::ScalarType type) {
  ::torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  const auto images = ::torch::randn({batch, 1, 8, 8}, ::torch::kFloat64).to(type);
  return {images, ::torch::randint(5, {batch}, ::torch::kInt64)};
}

Batch my_share(const Batch& whole) {
  const std::int64_t share = batch / size();
  const std::int64_t first = rank() * share;
  return {whole.images.slice(0, first, first + share), whole.labels.slice(0, first, first + share)};
}

void backward(nn::Sequential& network, const Batch& examples) {
  nn::functional::cross_entropy(network->forward(examples.images), examples.labels).backward();
}

void compare_with_one_process(::torch::ScalarType type, double tolerance) {
  const auto options = optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3);
  auto reference = make_network(type);
  optim::SGD reference_optimizer(reference->parameters(), options);
  auto network = make_network(type);
  DistributedOptimizer optimizer(optim::SGD(network->parameters(), options),
                                 network->named_parameters());
  const auto parameters = network->parameters();
  const auto expected = reference->parameters();
  const auto before = flat(parameters);

  for (int step = 0; step < 10; ++step) {
    const Batch whole = global_batch(step, type);
    reference_optimizer.zero_grad();
    backward(reference, whole);
    optimizer.zero_grad();
    backward(network, my_share(whole));
    optimizer.synchronize();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      expect_close(parameters[i].grad(), expected[i].grad(), tolerance);
    }
    reference_optimizer.step();
    optimizer.step();
    expect_same_bits_on_all_ranks(parameters);
  }
  expect_close(flat(parameters), flat(expected), tolerance);
  EXPECT_GT((flat(parameters) - before).abs().max().item<double>(), 0.01) << "nothing was learned";
}

using TrainingTest = TorchTest;

TEST_F(TrainingTest, EqualsOneProcessOnTheWholeBatchInFloat64) {
  compare_with_one_process(::torch::kFloat64, 1e-10);
}

TEST_F(TrainingTest, EqualsOneProcessOnTheWholeBatchInFloat32) {
  compare_with_one_process(::torch::kFloat32, 1e-5);
}

TEST_F(TrainingTest, ClipsTheAveragedGradients) {
  auto reference = make_network(::torch::kFloat64);
  optim::SGD reference_optimizer(reference->parameters(), 0.1);
  auto network = make_network(::torch::kFloat64);
  DistributedOptimizer optimizer(optim::SGD(network->parameters(), 0.1),
                                 network->named_parameters());
  for (int step = 0; step < 3; ++step) {
    const Batch whole = global_batch(step, ::torch::kFloat64);
    reference_optimizer.zero_grad();
    backward(reference, whole);
    optimizer.zero_grad();
    backward(network, my_share(whole));
    optimizer.synchronize();
    const double norm = nn::utils::clip_grad_norm_(network->parameters(), 0.05);
    EXPECT_NEAR(norm, nn::utils::clip_grad_norm_(reference->parameters(), 0.05), 1e-10);
    EXPECT_GT(norm, 0.05);
    reference_optimizer.step();
    optimizer.step();  // must not reduce again
  }
  expect_close(flat(network->parameters()), flat(reference->parameters()), 1e-10);
}

// A rank has fewer batches than the next one; in each epoch another rank has the fewest.
TEST_F(TrainingTest, GoesOnAfterEpochsOfUnevenData) {
  ::torch::Tensor a = parameter({0.0});
  ::torch::Tensor b = parameter({0.0});
  nn::Embedding embedding(nn::EmbeddingOptions(5, 1).sparse(true));
  DistributedOptimizer first(optim::SGD({a}, 1.0));
  DistributedOptimizer second(optim::SGD({b}, 1.0), {.backward_passes_per_step = 2});
  DistributedOptimizer sparse(optim::SGD(embedding->parameters(), 1.0));
  const auto batches_of = [](int rank, int epoch) { return 1 + (rank + epoch) % size(); };
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (int step = 0; step < batches_of(rank(), epoch); ++step) {
      double sum = 0.0;
      for (int r = 0; r < size(); ++r)
        if (step < batches_of(r, epoch)) sum += r + 1.0;
      first.zero_grad();
      second.zero_grad();
      sparse.zero_grad();
      backward(a, rank() + 1);
      for (int pass = 0; pass < 2; ++pass) backward(b, rank() + 1);
      (embedding->forward(::torch::tensor({3})) * (rank() + 1)).sum().backward();
      // While other ranks have joined, rank 0 among them.
      EXPECT_NEAR(clip_grad_norm(first, 1000.0), sum / size(), 1e-12);
      first.step();
      second.synchronize();
      expect_close(b.grad(), values({2.0 * sum / size()}));
      second.step();
      sparse.synchronize();
      EXPECT_NEAR(embedding->weight.grad().to_dense()[3].item<double>(), sum / size(), 1e-5);
      sparse.step();
    }
    (void)join();
  }
}

TEST_F(TrainingTest, AStepMayEndAfterTheJoin) {
  ::torch::Tensor w = parameter({0.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 1.0));
  for (int round = 0; round < 2; ++round) {
    const bool is_alone = rank() == size() - 1;
    optimizer.zero_grad();
    if (is_alone) backward(w, 100.0);
    (void)join();
    if (is_alone) {
      expect_close(w.grad(), values({100.0 / size()}));
      optimizer.step();
    }
    optimizer.zero_grad();
    backward(w, rank() + 1);
    expect_close(w.grad(), values({mean_rank()}));
    optimizer.step();
  }
}

// One rank stops after a pass that reduces nothing: the others know of no step to end.
TEST_F(TrainingTest, APassBeforeAJoinIsForgotten) {
  ::torch::Tensor w = parameter({0.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 1.0), {.backward_passes_per_step = 2});
  for (const std::string next : {"passes", "step", "skip"}) {
    const bool is_cut = rank() == size() - 1;
    if (is_cut) backward(w, 100.0);
    (void)join();
    if (next == "skip") optimizer.skip_step();  // on all ranks
    if (next == "step" && is_cut) {
      EXPECT_THROW(optimizer.step(), InvalidArgument);
    }
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      for (int pass = 0; pass < 2; ++pass) backward(w, rank() + 1);
      expect_close(w.grad(), values({2.0 * mean_rank()}));
      optimizer.step();
    }
  }
}

// A gradient refused because of a pending join was not submitted, so the join interrupts no step.
TEST_F(TrainingTest, AGradientThatWasRefusedIsDiscarded) {
  ::torch::Tensor dense = parameter({0.0});
  nn::Embedding sparse(nn::EmbeddingOptions(5, 1).sparse(true));
  DistributedOptimizer optimizer(optim::SGD({dense, sparse->weight}, 1.0));
  const auto backward_of_both = [&] {
    backward(dense, rank() + 1);
    (sparse->forward(::torch::tensor({3})) * (rank() + 1)).sum().backward();
  };
  if (rank() == size() - 1 && size() > 1) {
    Future<int> joined = join_async();
    EXPECT_THROW(backward(dense, 1.0), InvalidArgument);
    EXPECT_THROW(sparse->forward(::torch::tensor({3})).sum().backward(), InvalidArgument);
    wait_for_all();  // the others join when both were refused
    (void)joined.get();
  } else {
    wait_for_all();
    (void)join();
  }
  optimizer.zero_grad();
  backward_of_both();
  optimizer.synchronize();
  expect_close(dense.grad(), values({mean_rank()}));
  EXPECT_NEAR(sparse->weight.grad().to_dense()[3].item<double>(), mean_rank(), 1e-5);
  optimizer.step();
}

TEST_F(TrainingTest, ASkippedStepLeavesTheParametersAndTheRanksInStep) {
  ::torch::Tensor w = parameter({0.0});
  ::torch::Tensor unused = parameter({0.0});
  DistributedOptimizer optimizer(optim::SGD({w, unused}, 1.0));
  for (int step = 0; step < 4; ++step) {
    backward(w, 100.0);
    if (step % 2 == 0) optimizer.synchronize();
    optimizer.skip_step();
    w.mutable_grad().zero_();  // as a module's zero_grad() does
    backward(w, rank() + 1);
    optimizer.step();
    w.mutable_grad().zero_();
  }
  expect_close(w, values({-4.0 * mean_rank()}));
}

TEST_F(TrainingTest, GoesOnAfterConversionToAnotherType) {
  auto reference = make_network(::torch::kFloat64);
  optim::SGD reference_optimizer(reference->parameters(), 0.1);
  auto network = make_network(::torch::kFloat32);
  DistributedOptimizer optimizer(optim::SGD(network->parameters(), 0.1),
                                 network->named_parameters());
  network->to(::torch::kFloat64);
  reference->to(::torch::kFloat32);  // rounded as the other was
  reference->to(::torch::kFloat64);
  for (int step = 0; step < 3; ++step) {
    const Batch whole = global_batch(step, ::torch::kFloat64);
    reference_optimizer.zero_grad();
    backward(reference, whole);
    optimizer.zero_grad();
    backward(network, my_share(whole));
    reference_optimizer.step();
    optimizer.step();
  }
  expect_close(flat(network->parameters()), flat(reference->parameters()), 1e-10);

  // The hooks are restored: gradients are final before a step.
  reference_optimizer.zero_grad();
  optimizer.zero_grad();
  backward(reference, global_batch(3, ::torch::kFloat64));
  backward(network, my_share(global_batch(3, ::torch::kFloat64)));
  for (std::size_t i = 0; i < network->parameters().size(); ++i)
    expect_close(network->parameters()[i].grad(), reference->parameters()[i].grad(), 1e-10);
}

// Each rank pulls the parameters to its own number: the minimum of the mean is the mean.
TEST_F(TrainingTest, LineSearchesAgreeOnAllRanks) {
  ::torch::Tensor w = parameter({5.0, -3.0, 0.25});
  DistributedOptimizer optimizer(optim::LBFGS({w}, optim::LBFGSOptions(1)
                                                       .max_iter(10)
                                                       .tolerance_grad(1e-12)
                                                       .tolerance_change(1e-15)
                                                       .line_search_fn("strong_wolfe")));
  const auto scale = values({1.0, 4.0, 0.5});
  ::torch::Tensor loss;
  for (int step = 0; step < 4; ++step) {
    loss = optimizer.step([&] {
      optimizer.zero_grad();
      const ::torch::Tensor mine = (scale * (w - (rank() + 1)).pow(2)).sum();
      mine.backward();
      return mine;
    });
    expect_same_bits_on_all_ranks({w});
    expect_same_bits_on_all_ranks({loss});
  }
  expect_close(w, values({mean_rank(), mean_rank(), mean_rank()}), 1e-6);
}

TEST_F(TrainingTest, StepWithAClosureReturnsTheMeanLoss) {
  ::torch::Tensor w = parameter({2.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 0.5));
  const ::torch::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    const ::torch::Tensor mine = (w * (rank() + 1)).sum();
    mine.backward();
    return mine;
  });
  EXPECT_DOUBLE_EQ(loss.item<double>(), 2.0 * mean_rank());
  expect_close(w, values({2.0 - 0.5 * mean_rank()}));
}

}  // namespace
}  // namespace kolo::internal::testing_support
