// SPDX-License-Identifier: Apache-2.0
// Parameters of LibTorch that differ between the ranks: in backward passes, and on request.
#include "support.hpp"

#include <numeric>
#include <stdexcept>
#include <string>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;
using ::torch::Tensor;

class EqualParameters : public TorchTest {
 protected:
  void SetUp() override {
    if (size() == 1) GTEST_SKIP() << "one rank cannot differ";
  }

  template <typename Action>
  void expect_refused(const Action& action, const char* parameter, const std::vector<int>& ranks) {
    const auto error = error_of<Mismatch>(action);
    EXPECT_EQ(error.tensor(), parameter);
    EXPECT_EQ(error.ranks(), ranks);
    EXPECT_THAT(error.what(), HasSubstr("broadcast_parameters"));
  }
  /// Makes the second layer's weight differ on the last rank.
  void change_on_last() {
    const ::torch::NoGradGuard no_grad;
    if (rank() == last_) model_[1]->as<nn::Linear>()->weight.add_(1.0);
  }
  void backward() { model_->forward(::torch::ones({2, 3})).sum().backward(); }
  static nn::Sequential make_model() {
    ::torch::manual_seed(1);
    nn::Sequential model(nn::Linear(3, 4), nn::Linear(4, 2));
    return model;
  }

  const int last_ = size() - 1;
  nn::Sequential model_ = make_model();
};

TEST_F(EqualParameters, PassAndAreComparedNoMore) {
  DistributedOptimizer optimizer(optim::SGD(model_->parameters(), 0.1), model_->named_parameters());
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    backward();
    optimizer.step();
    change_on_last();
  }
}

TEST_F(EqualParameters, DifferentOnesAreRefusedInTheFirstPass) {
  change_on_last();
  DistributedOptimizer optimizer(optim::SGD(model_->parameters(), 0.1), model_->named_parameters());
  expect_refused([&] { backward(); }, "1.weight", {last_});
  broadcast_parameters(*model_, 0);
  optimizer.zero_grad();
  backward();
  optimizer.step();
  expect_same_bits_on_all_ranks(model_->parameters());
}

/// Another optimizer of the parameters may have stepped there since the other ranks' passes.
TEST_F(EqualParameters, OfRanksWithoutABackwardPassAreNotCompared) {
  if (rank() == 0) {
    const ::torch::NoGradGuard no_gradients;
    model_->parameters().back().add_(1.0);
  }
  DistributedOptimizer optimizer(optim::SGD(model_->parameters(), 0.1), model_->named_parameters());
  if (rank() != 0) backward();
  EXPECT_NO_THROW(optimizer.step());
}

TEST_F(EqualParameters, OfRanksThatAllReduceInTheStepAreCompared) {
  change_on_last();
  DistributedOptimizer optimizer(optim::SGD(model_->parameters(), 0.0), model_->named_parameters());
  {
    const NoSync local = optimizer.no_sync();
    backward();
  }
  expect_refused([&] { optimizer.step(); }, "1.weight", {last_});
  const ::torch::Tensor reduced = model_[1]->as<nn::Linear>()->bias.grad().clone();
  optimizer.step();  // the gradients are reduced, and are not reduced again
  EXPECT_TRUE(same_bits(reduced, model_[1]->as<nn::Linear>()->bias.grad()));
}

TEST_F(EqualParameters, AreComparedInTheSecondPassIfTheFirstFails) {
  change_on_last();
  DistributedOptimizer optimizer(optim::SGD(model_->parameters(), 0.1), model_->named_parameters());
  ::torch::Tensor x = ::torch::ones({2, 3}).set_requires_grad(true);
  x.register_hook([](const ::torch::Tensor&) {
    if (rank() == 0) throw std::runtime_error("backward fails");
  });
  EXPECT_ANY_THROW(model_->forward(x).sum().backward());
  optimizer.zero_grad();
  expect_refused([&] { backward(); }, "1.weight", {last_});
}

TEST_F(EqualParameters, ThatCannotBeReadAreLeftOut) {
  ::torch::Tensor a = parameter({1.0});
  ::torch::Tensor compressed = ::torch::eye(3).to_sparse_csr();
  ::torch::Tensor freed = ::torch::ones({4});
  freed.storage().set_nbytes(0);
  const DistributedGradients gradients({{"a", a}, {"compressed", compressed}, {"freed", freed}});
  a.sum().backward();
  expect_close(a.grad(), values({1.0}));
}

TEST_F(EqualParameters, OfDistributedGradients) {
  change_on_last();
  DistributedGradients gradients(*model_, {.compare = {.every = 2}});
  expect_refused([&] { backward(); }, "1.weight", {last_});
  backward();
  expect_refused([&] { backward(); }, "1.weight", {last_});
}

TEST_F(EqualParameters, OfAShardedOptimizer) {
  change_on_last();
  for (const auto sharding : {Sharding::state, Sharding::state_and_gradients}) {
    ShardedOptimizer optimizer(optim::SGD(model_->parameters(), 0.1), model_->named_parameters(),
                               {}, sharding);
    expect_refused([&] { backward(); }, "1.weight", {last_});
  }
}

TEST_F(EqualParameters, OfSeveralOptimizersInOnePass) {
  change_on_last();
  DistributedOptimizer first(optim::SGD(model_[0]->parameters(), 0.1));
  DistributedOptimizer second(optim::SGD(model_[1]->parameters(), 0.1));
  expect_refused([&] { backward(); }, "group0.0", {last_});
  first.zero_grad();
  second.zero_grad();
  backward();
}

TEST_F(EqualParameters, MayDifferIfTheyAreNamed) {
  change_on_last();
  DistributedOptimizer optimizer(optim::SGD(model_->parameters(), 0.1), model_->named_parameters(),
                                 {.compare = {.except = {"1.weight"}}});
  backward();
  optimizer.step();
  EXPECT_THROW(DistributedOptimizer(optim::SGD(model_->parameters(), 0.1),
                                    {.compare = {.except = {"1.weight"}}}),
               InvalidArgument);
}

// All ranks but rank 0 differ from it.
TEST_F(EqualParameters, ThatAreAddedToAnOptimizerAreComparedInItsStep) {
  std::vector<int> others(static_cast<std::size_t>(last_));
  std::iota(others.begin(), others.end(), 1);
  DistributedOptimizer optimizer(optim::SGD(model_->parameters(), 0.0));
  backward();
  optimizer.step();
  ::torch::Tensor added = parameter({1.0 + rank()});
  optimizer.add_param_group(optim::OptimizerParamGroup({added}));
  backward();
  expect_refused([&] { optimizer.step(); }, "group1.0", others);
  for (int i = 0; i < 2; ++i) {
    optimizer.step();
    optimizer.zero_grad();
    backward();
  }
}

TEST_F(EqualParameters, OfLayersThatReplaceOthersAreComparedInTheFirstPassThatReduces) {
  for (const bool at_start : {true, false}) {
    model_ = make_model();
    DistributedGradients gradients(*model_, {.compare = {.at_start = at_start}});
    backward();
    for (int round = 0; round < 2; ++round) {
      model_->zero_grad();
      ::torch::manual_seed(rank() == last_ ? 2 : 3);
      model_->replace_module("1", nn::Linear(4, 2).ptr());
      const auto sum = [&] {
        ::torch::Tensor all = ::torch::zeros({});
        for (const ::torch::Tensor& parameter : model_->parameters()) all = all + parameter.sum();
        return all;
      };
      {
        const NoSync local = gradients.no_sync();
        sum().backward();
      }
      if (at_start) {
        expect_refused([&] { sum().backward(); }, "1.weight", {last_});
      } else {
        sum().backward();
      }
      sum().backward();
    }
  }
}

// A rank that has joined may learn of the new layer only in its first pass afterwards.
TEST_F(EqualParameters, ThatAreAddedAfterAJoinAreNotCompared) {
  DistributedGradients gradients(*model_);
  backward();
  join();
  model_->register_module("2", nn::Linear(2, 2).ptr());
  model_->named_children()["2"]->parameters()[0].detach().fill_(rank());
  for (int i = 0; i < 2; ++i) backward();
}

TEST_F(EqualParameters, OfJoinedRanksAreNotCompared) {
  change_on_last();
  DistributedOptimizer optimizer(optim::SGD(model_->parameters(), 0.1), model_->named_parameters());
  for (int i = 0; i < 3 && rank() != last_; ++i) {
    optimizer.zero_grad();
    backward();
    optimizer.step();
  }
  join();
  optimizer.zero_grad();
  backward();
  optimizer.step();
}

TEST_F(EqualParameters, OnRequestAreTakenFromModulesOfAllKinds) {
  const ::torch::nn::BatchNorm1d holder(2);
  require_equal(holder);
  require_equal(*holder);
  require_equal(holder->named_parameters());
  ::torch::jit::Module traced("traced");
  traced.register_parameter("w", ::torch::ones(2), /*is_buffer=*/false);
  traced.register_buffer("seen", ::torch::zeros(2));
  require_equal(traced);
  if (rank() == last_) traced.attr("seen").toTensor().add_(1);
  require_equal(traced.named_parameters());
  if (size() == 1) return;
  EXPECT_EQ(error_of<Mismatch>([&] { require_equal(traced); }).tensor(), "seen");
}

TEST_F(EqualParameters, OnRequestAreComparedByTheirValues) {
  const ::torch::Tensor a = ::torch::arange(6, f64).reshape({2, 3});
  require_equal(NamedParameters{{"a", rank() == 0 ? a : a.t().contiguous().t()}});
  const ::torch::Tensor c = ::torch::complex(a, a + 1.0);
  require_equal(NamedParameters{{"c", rank() == 0 ? c.conj() : c.conj().resolve_conj()}});
  EXPECT_EQ(error_of<Mismatch>([&] {
              require_equal(NamedParameters{{"c", rank() == last_ ? c.conj() : c}});
            }).tensor(),
            "c");
  const auto error = error_of<Error>([&] {
    require_equal(NamedParameters{{"a", rank() == last_ ? ::torch::Tensor() : a}});
  });
  EXPECT_THAT(error.what(), HasSubstr("'a' is undefined (on rank " + std::to_string(last_)));
  require_equal(NamedParameters{{"a", a}});
}

TEST_F(EqualParameters, OnRequestIncludeTheScalesOfQuantizedTensors) {
  const Tensor values = ::torch::ones({2, 3});
  const double scale = rank() == last_ ? 0.5 : 1.0;
  const Tensor all = ::torch::quantize_per_tensor(values, 1.0, 0, ::torch::kQInt8);
  EXPECT_NO_THROW(require_equal(NamedParameters{{"table", all}}));
  // The same integers.
  const Tensor odd = ::torch::quantize_per_tensor(values * scale, scale, 0, ::torch::kQInt8);
  ASSERT_TRUE(odd.int_repr().equal(all.int_repr()));
  const auto error = error_of<Mismatch>([&] { require_equal(NamedParameters{{"table", odd}}); });
  EXPECT_EQ(error.tensor(), "table");
  const auto by_channel = [&](double last) {
    return ::torch::quantize_per_channel(values, ::torch::tensor({1.0, last}),
                                         ::torch::zeros({2}, ::torch::kLong), 0, ::torch::kQInt8);
  };
  EXPECT_NO_THROW(require_equal(NamedParameters{{"table", by_channel(1.0)}}));
  EXPECT_THROW(require_equal(NamedParameters{{"table", by_channel(scale)}}), Mismatch);
}

TEST_F(EqualParameters, OnRequest) {
  nn::BatchNorm1d norm(2);
  require_equal(*model_);
  require_equal(*norm);
  norm->running_mean.add_(rank());
  require_equal(norm->named_parameters());
  EXPECT_EQ(error_of<Mismatch>([&] { require_equal(*norm); }).tensor(), "running_mean");
  change_on_last();
  const auto error = error_of<Mismatch>([&] { require_equal(*model_); });
  EXPECT_EQ(error.tensor(), "1.weight");
  EXPECT_EQ(error.ranks(), std::vector{last_});
}

}  // namespace
}  // namespace kolo::internal::testing_support
