// SPDX-License-Identifier: Apache-2.0
// Broadcasts of tensors, parameters and optimizer state.
#include "support.hpp"

#include <functional>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;

using StateTest = TorchTest;

TEST_F(StateTest, AllreduceInAndOutOfPlace) {
  const ::torch::Tensor mine = ::torch::full({2, 3}, rank() + 1.0);
  const ::torch::Tensor sum = allreduce(mine, {.name = "x", .op = ReduceOp::sum});
  expect_close(sum, ::torch::full({2, 3}, mean_rank() * size()));
  expect_close(mine, ::torch::full({2, 3}, rank() + 1.0));
  ::torch::Tensor changed = mine.clone();
  allreduce_(changed);
  expect_close(changed, ::torch::full({2, 3}, mean_rank()));

  ::torch::Tensor scalar = ::torch::scalar_tensor(rank() + 1, ::torch::kInt64);
  allreduce_(scalar, {.op = ReduceOp::sum});
  EXPECT_EQ(scalar.item<std::int64_t>(), size() * (size() + 1) / 2);
}

TEST_F(StateTest, TensorsInAnotherOrderAreMatchedByPosition) {
  const auto plain = ::torch::arange(12, ::torch::kFloat64).reshape({3, 4});
  // On odd ranks the memory has the transposed order.
  ::torch::Tensor mixed = rank() % 2 == 0 ? plain.clone() : plain.t().contiguous().t();
  ASSERT_EQ(mixed.is_contiguous(), rank() % 2 == 0);
  allreduce_(mixed, {.op = ReduceOp::sum});
  expect_close(mixed, plain * size());

  ::torch::Tensor matrix = ::torch::zeros({3, 4}, ::torch::kFloat64);
  ::torch::Tensor column = matrix.select(1, 2);  // with gaps
  if (rank() == 0) column.fill_(5.0);
  broadcast_(column, 0);
  EXPECT_DOUBLE_EQ(matrix.sum().item<double>(), 15.0);
  expect_close(matrix.select(1, 2), ::torch::full({3}, 5.0, ::torch::kFloat64));
}

TEST_F(StateTest, RefusesWhatIsNoDenseTensor) {
  ::torch::Tensor undefined;
  error_of<InvalidArgument>([&] { allreduce_(undefined, {.name = "u"}); });
  ::torch::Tensor sparse = ::torch::eye(3).to_sparse();
  EXPECT_EQ(error_of<InvalidArgument>([&] { allreduce_(sparse, {.name = "s"}); }).tensor(), "s");
  ::torch::Tensor complex = ::torch::zeros({2}, ::torch::kComplexFloat);
  error_of<InvalidArgument>([&] { broadcast_(complex, 0); });
}

TEST_F(StateTest, BroadcastsParametersAndBuffers) {
  const int root = size() - 1;
  nn::Sequential model(nn::Linear(3, 4), nn::BatchNorm1d(4));
  {
    const ::torch::NoGradGuard no_grad;
    for (auto& tensor : model->parameters()) tensor.fill_(10.0 * rank());
    for (auto& tensor : model->buffers()) tensor.fill_(10 * rank() + 1);
  }
  broadcast_parameters(*model, root);
  for (const auto& tensor : model->parameters()) {
    EXPECT_TRUE(tensor.eq(10.0 * root).all().item<bool>());
    EXPECT_TRUE(tensor.requires_grad());
  }
  ASSERT_EQ(model->buffers().size(), 3U);
  for (const auto& tensor : model->buffers()) {
    EXPECT_TRUE(tensor.eq(10 * root + 1).all().item<bool>());
  }
}

/// A module that is none of LibTorch's.
struct OwnModule {
  NamedParameters named_parameters() const { return {{"weight", weight}}; }
  NamedParameters named_buffers() const { return {{"count", count}}; }
  ::torch::Tensor weight = ::torch::full({2, 2}, rank() + 1.0);
  ::torch::Tensor count = ::torch::full({1}, rank());
};

static_assert(AnyModule<nn::LinearImpl> && AnyModule<nn::Linear> && AnyModule<OwnModule>);
static_assert(AnyModule<::torch::jit::Module> && !AnyModule<::torch::Tensor>);

::torch::jit::Module jit_module() {
  ::torch::jit::Module inner("inner");
  inner.register_parameter("weight", ::torch::full({2, 2}, rank() + 1.0), /*is_buffer=*/false);
  ::torch::jit::Module module("outer");
  module.register_module("inner", inner);
  module.register_buffer("count", ::torch::full({1}, rank()));
  return module;
}

TEST_F(StateTest, EveryKindOfModuleIsBroadcast) {
  const int root = size() - 1;
  nn::Linear holder(2, 2);
  {
    const ::torch::NoGradGuard no_grad;
    holder->weight.fill_(rank() + 1.0);
  }
  broadcast_parameters(holder, root);
  const OwnModule own;
  broadcast_parameters(own, root);
  const ::torch::jit::Module jit = jit_module();
  broadcast_parameters(jit, root);
  const ::torch::Tensor listed = ::torch::full({2, 2}, rank() + 1.0);
  broadcast_parameters({{"listed", listed}}, root);
  const ::torch::Tensor from_jit = jit.attr("inner").toModule().attr("weight").toTensor();
  for (const ::torch::Tensor& weight : {holder->weight.detach(), own.weight, from_jit, listed})
    expect_close(weight, ::torch::full({2, 2}, size()), 0.0);
  for (const ::torch::Tensor& count : {own.count, jit.attr("count").toTensor()})
    EXPECT_EQ(count.item<int>(), root);
}

TEST_F(StateTest, TheGradientsOfEveryKindOfModuleAreReduced) {
  ::torch::manual_seed(1);
  nn::Linear holder(2, 1);
  ::torch::jit::Module jit("jit");
  ::torch::Tensor of_jit = parameter({1.0, 1.0});
  jit.register_parameter("weight", of_jit, /*is_buffer=*/false);
  ::torch::Tensor listed = parameter({1.0, 1.0});
  const DistributedGradients first(holder);
  const DistributedGradients second(jit);
  const DistributedGradients third({{"listed", listed}});
  (holder->weight.sum() * (rank() + 1)).backward();
  backward(of_jit, rank() + 1);
  backward(listed, rank() + 1);
  expect_close(holder->weight.grad(), ::torch::full({1, 2}, mean_rank()), 1e-6);
  for (const ::torch::Tensor& tensor : {of_jit, listed})
    expect_close(tensor.grad(), values({mean_rank(), mean_rank()}));

  // Modules are looked at before each backward.
  of_jit = parameter({1.0, 1.0});
  jit.setattr("weight", of_jit);
  backward(of_jit, rank() + 1);
  expect_close(of_jit.grad(), values({mean_rank(), mean_rank()}));

  nn::Linear wrapped(2, 1);
  DistributedOptimizer optimizer(optim::SGD(wrapped->parameters(), 1.0), wrapped,
                                 {.groups = {{"weight", "bias"}}});
  (wrapped->weight.sum() * (rank() + 1)).backward();
  expect_close(wrapped->weight.grad(), ::torch::full({1, 2}, mean_rank()), 1e-6);
}

// Their memory has the conjugated elements on some ranks.
TEST_F(StateTest, ConjugatedBuffersAreBroadcast) {
  const auto complex = [](double imaginary) {
    return ::torch::complex(values({1.0, 2.0}), values({imaginary, 0.0}));
  };
  for (int conjugated = 0; conjugated <= size(); ++conjugated) {
    const bool is_conjugated = conjugated == size() || rank() == conjugated;
    const ::torch::Tensor buffer =
        is_conjugated ? complex(-rank() - 1.0).conj() : complex(rank() + 1.0);
    for (const int root : {0, size() - 1}) {
      broadcast_parameters({{"buffer", buffer}}, root);
      EXPECT_TRUE(::torch::equal(buffer.resolve_conj(), complex(1.0)));
      broadcast_buffers({{"buffer", buffer}}, root);
      EXPECT_TRUE(::torch::equal(buffer.resolve_conj(), complex(1.0)));
    }
  }
}

TEST_F(StateTest, ComplexBuffersAreBroadcast) {
  struct Signal : nn::Module {
    ::torch::Tensor spectrum =
        register_buffer("spectrum", ::torch::view_as_complex(::torch::full({3, 2}, rank() + 1.0)));
    ::torch::Tensor weight = register_parameter("weight", ::torch::full({2}, rank() + 1.0));
  };
  const int root = size() - 1;
  const auto expected = ::torch::full({3, 2}, size());
  Signal all;
  broadcast_parameters(all, root);
  expect_close(::torch::view_as_real(all.spectrum), expected, 0.0);
  expect_close(all.weight.detach(), ::torch::full({2}, size()), 0.0);
  Signal buffers;
  broadcast_buffers(buffers, root);
  expect_close(::torch::view_as_real(buffers.spectrum), expected, 0.0);
  if (size() == 1) return;
  // A real tensor of the same memory is another tensor.
  const ::torch::Tensor other = rank() == 0 ? all.spectrum : ::torch::view_as_real(all.spectrum);
  EXPECT_THAT(error_of<Mismatch>([&] {
                broadcast_parameters({{"x", other}}, 0);
              }).what(),
              HasSubstr("ComplexFloat [3] on rank 0"));
}

TEST_F(StateTest, GradientsAreReducedInPlace) {
  const ::torch::Tensor w = parameter({1.0});
  backward(w, rank() + 1);
  allreduce_(w.grad());
  expect_close(w.grad(), values({mean_rank()}));
  broadcast_(w.grad(), 0);
}

/// Two batch normalizations, one of them listed twice, and buffers of other kinds.
struct Buffered : nn::Module {
  Buffered(std::int64_t channels, std::int64_t rows)
      : norm(register_module("norm", nn::BatchNorm1d(channels))) {
    register_module("again", norm);
    register_module("stateless",
                    nn::BatchNorm1d(nn::BatchNorm1dOptions(3).track_running_stats(false)));
    matrix = register_buffer("matrix", ::torch::zeros({rows, 3}, ::torch::kFloat64).t());
    mask = register_buffer("mask", ::torch::zeros({5}, ::torch::kBool));
    empty = register_buffer("empty", ::torch::zeros({0, 4}));
    weight = register_parameter("weight", ::torch::full({2}, rank() + 1.0));
  }
  nn::BatchNorm1d norm;
  ::torch::Tensor matrix, mask, empty, weight;
};

TEST_F(StateTest, BroadcastsBuffersAlone) {
  const int root = size() - 1;
  Buffered module(7, 2);
  for (int round = 1; round <= 3; ++round) {
    const double value = round * 10.0 + rank();
    module.norm->running_mean.fill_(value);
    module.norm->num_batches_tracked.fill_(round * 10 + rank());
    module.matrix.copy_(::torch::arange(6, f64).reshape({3, 2}) * value);
    module.mask.fill_(rank() == root);
    broadcast_buffers(module, root);
    const double expected = round * 10.0 + root;
    expect_close(module.norm->running_mean, ::torch::full({7}, expected), 0.0);
    expect_close(module.norm->running_var, ::torch::ones({7}), 0.0);
    EXPECT_EQ(module.norm->num_batches_tracked.item<std::int64_t>(), round * 10 + root);
    expect_close(module.matrix, ::torch::arange(6, f64).reshape({3, 2}) * expected, 0.0);
    EXPECT_TRUE(module.mask.all().item<bool>());
    expect_close(module.weight, ::torch::full({2}, rank() + 1.0), 0.0);
  }
  nn::Linear without(2, 2);
  broadcast_buffers(*without, root);
}

TEST_F(StateTest, BroadcastsBuffersInAProcessSet) {
  const ProcessSet set = add_process_set({0});
  Buffered module(7, 2);
  module.mask.fill_(true);
  if (rank() == 0) {
    broadcast_buffers(module, 0, set);
    EXPECT_TRUE(module.mask.all().item<bool>());
  }
  error_of<InvalidArgument>([&] { broadcast_buffers(module, size(), set); });
}

// Buffers of another size, of the same size but another shape, and no buffers.
TEST_F(StateTest, BroadcastOfOtherBuffersIsRefusedOnEveryRank) {
  if (size() == 1) return;
  const bool differs = rank() == size() - 1;
  const auto refuse = [&](nn::Module& module, const char* tensor) {
    const auto error = error_of<Mismatch>([&] { broadcast_buffers(module, 0); });
    EXPECT_THAT(error.tensor(), tensor);
    EXPECT_THAT(error.ranks(), testing::ElementsAre(size() - 1));
  };
  Buffered channels(differs ? 8 : 7, 2);
  refuse(channels, "norm.running_mean");
  Buffered shape(3, differs ? 1 : 2);
  refuse(shape, "matrix");
  Buffered buffers(3, 2);
  nn::Linear without(2, 2);
  error_of<Mismatch>(
      [&] { broadcast_buffers(differs ? static_cast<nn::Module&>(*without) : buffers, 0); });
  EXPECT_DOUBLE_EQ(average(rank() + 1.0), mean_rank());
}

TEST_F(StateTest, BroadcastOfAnotherModelIsRefusedOnEveryRank) {
  if (size() == 1) return;
  nn::Linear model(3, rank() == 0 ? 4 : 5);
  const auto error = error_of<Mismatch>([&] { broadcast_parameters(*model, 0); });
  EXPECT_EQ(error.tensor(), "weight");
  EXPECT_EQ(error.ranks().size(), static_cast<std::size_t>(size() - 1));
  EXPECT_THAT(error.what(), HasSubstr("f32 [4, 3] on rank 0 and f32 [5, 3] on rank 1"));
  EXPECT_DOUBLE_EQ(average(rank() + 1.0), mean_rank());
}

// Trains `steps` steps on equal data on all ranks.
template <typename Optimizer>
void train(nn::Linear& model, Optimizer& optimizer, int steps, bool with_closure) {
  for (int step = 0; step < steps; ++step) {
    ::torch::manual_seed(static_cast<std::uint64_t>(step));
    const auto x = ::torch::randn({8, 3}, ::torch::kFloat64);
    const auto closure = [&] {
      optimizer.zero_grad();
      const ::torch::Tensor loss = (model->forward(x) - x.sum(1, true)).pow(2).mean();
      loss.backward();
      return loss;
    };
    if (with_closure) {
      optimizer.step(closure);
    } else {
      closure();
      optimizer.step(nullptr);  // LBFGS has no default
    }
  }
}

// The root has trained; the others have a fresh model and other options. After the broadcasts all
// ranks must continue equally.
template <typename Optimizer, typename Options>
void expect_state_travels(Options of_root, Options of_others, bool with_closure = false,
                          int steps_of_root = 3) {
  const int root = size() - 1;
  ::torch::manual_seed(static_cast<std::uint64_t>(1 + rank()));
  nn::Linear model(3, 1);
  model->to(::torch::kFloat64);
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<::torch::Tensor>{model->weight});
  if (with_closure) {
    groups.back().params().push_back(model->bias);  // LBFGS has one group
  } else {
    groups.emplace_back(std::vector<::torch::Tensor>{model->bias});
  }
  Optimizer optimizer(groups, rank() == root ? of_root : of_others);
  if (rank() == root) {
    train(model, optimizer, steps_of_root, with_closure);
    if (!with_closure) optimizer.param_groups()[1].options().set_lr(0.005);
  } else {
    train(model, optimizer, 1, with_closure);  // the broadcast must replace this state
  }

  broadcast_parameters(*model, root);
  broadcast_optimizer_state(optimizer, root);
  for (const auto& group : optimizer.param_groups()) {
    const bool second = &group != &optimizer.param_groups().front();
    EXPECT_DOUBLE_EQ(group.options().get_lr(), second ? 0.005 : of_root.get_lr());
  }
  train(model, optimizer, 3, with_closure);
  expect_same_bits_on_all_ranks(model->parameters());
}

TEST_F(StateTest, StateOfSGDTravels) {
  expect_state_travels<optim::SGD>(optim::SGDOptions(0.05).momentum(0.9), optim::SGDOptions(0.5));
}

TEST_F(StateTest, StateOfAdamTravels) {
  expect_state_travels<optim::Adam>(
      optim::AdamOptions(0.05).betas({0.8, 0.99}).weight_decay(0.1).amsgrad(true),
      optim::AdamOptions(0.5));
}

TEST_F(StateTest, StateOfAdamWTravels) {
  expect_state_travels<optim::AdamW>(optim::AdamWOptions(0.05).eps(1e-3), optim::AdamWOptions(0.5));
}

TEST_F(StateTest, StateOfRMSpropTravels) {
  expect_state_travels<optim::RMSprop>(
      optim::RMSpropOptions(0.05).alpha(0.9).momentum(0.5).centered(true),
      optim::RMSpropOptions(0.5));
}

TEST_F(StateTest, StateOfAdagradTravels) {
  expect_state_travels<optim::Adagrad>(optim::AdagradOptions(0.05).lr_decay(0.1),
                                       optim::AdagradOptions(0.5));
}

TEST_F(StateTest, StateOfLBFGSTravels) {
  expect_state_travels<optim::LBFGS>(optim::LBFGSOptions(0.5).max_iter(3).history_size(4),
                                     optim::LBFGSOptions(1.0).max_iter(2), true);
}

TEST_F(StateTest, EmptyStateReplacesWhatOthersHave) {
  expect_state_travels<optim::SGD>(optim::SGDOptions(0.05).momentum(0.9),
                                   optim::SGDOptions(0.5).momentum(0.1), false, 0);
  expect_state_travels<optim::LBFGS>(optim::LBFGSOptions(0.5).max_iter(3),
                                     optim::LBFGSOptions(1.0).max_iter(2), true, 0);
}

TEST_F(StateTest, StateOfADistributedOptimizerTravels) {
  ::torch::Tensor w = parameter({1.0, static_cast<double>(rank())});
  DistributedOptimizer optimizer(
      optim::SGD({w}, optim::SGDOptions(0.1 * (rank() + 1)).momentum(0.9)));
  broadcast_parameters(ModuleTensors({{"w", w}}), 0);
  broadcast_optimizer_state(optimizer, 0);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    (w * (rank() + 1)).sum().backward();
    optimizer.step();
    expect_same_bits_on_all_ranks({w});
  }
  // Momentum 0.9: the steps are 1, 1.9 and 2.71 times the gradient.
  expect_close(w, values({1.0, 0.0}) - 0.1 * 5.61 * mean_rank());
}

TEST_F(StateTest, AnotherOptimizerIsRefusedOnEveryRank) {
  if (size() == 1) return;
  nn::Linear model(3, 1);
  optim::SGD sgd(model->parameters(), 0.1);
  optim::Adam adam(model->parameters(), 0.1);
  const auto error = error_of<Mismatch>([&] {
    broadcast_optimizer_state(rank() == 0 ? static_cast<optim::Optimizer&>(sgd) : adam, 0);
  });
  EXPECT_THAT(error.what(), HasSubstr("torch::optim::SGD on rank 0 and torch::optim::Adam"));
  error_of<InvalidArgument>([&] { broadcast_optimizer_state(sgd, size()); });
}

TEST_F(StateTest, SetsTheLearningRateOfAllGroups) {
  ::torch::Tensor a = parameter({1.0});
  ::torch::Tensor b = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({a}, optim::SGDOptions(0.1).momentum(0.9)));
  optimizer.add_param_group(optim::OptimizerParamGroup({b}));
  set_learning_rate(optimizer, 0.25);
  for (const auto& group : optimizer.param_groups()) {
    EXPECT_DOUBLE_EQ(group.options().get_lr(), 0.25);
    EXPECT_DOUBLE_EQ(static_cast<const optim::SGDOptions&>(group.options()).momentum(), 0.9);
  }
}

TEST_F(StateTest, SetsALearningRateForEachGroup) {
  DistributedOptimizer optimizer(optim::SGD({parameter({1.0})}, optim::SGDOptions(0.1)));
  optimizer.add_param_group(optim::OptimizerParamGroup({parameter({1.0})}));
  set_learning_rate(optimizer, {0.25, 2.5});
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[1].options().get_lr(), 2.5);
  const auto error =
      error_of<InvalidArgument>([&] { set_learning_rate(optimizer, std::vector{0.5}); });
  EXPECT_THAT(error.what(), HasSubstr("1 learning rates for 2 parameter groups"));
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
}

TEST_F(StateTest, ThereIsADeviceForThisRank) {
  const ::torch::Device device = local_device();
  EXPECT_EQ(device.is_cpu(), !::torch::cuda::is_available());
  EXPECT_TRUE(::torch::zeros({1}, device).defined());
}

}  // namespace
}  // namespace kolo::internal::testing_support
