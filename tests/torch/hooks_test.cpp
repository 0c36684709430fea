// SPDX-License-Identifier: Apache-2.0
// Communication hooks of LibTorch's optimizers.
#include "../support/halves_hook.hpp"
#include "support.hpp"

#include <optional>
#include <utility>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;
using ::torch::Tensor;

class HooksTest : public TorchTest {
 protected:
  void backward_of_all(double factor) {
    ((early_.sum() + middle_.sum() + late_.sum()) * factor * (rank() + 1)).backward();
  }
  void zero_grad() {
    for (Tensor* w : {&early_, &middle_, &late_}) w->mutable_grad().reset();
  }

  const int last_ = size() - 1;
  Tensor early_ = parameter({1.0, 1.0});
  Tensor middle_ = parameter({1.0, 2.0, 3.0});
  Tensor late_ = parameter({1.0});
};

// Two optimizers of one parameter each: the first with a hook, the second with another or none.
struct TwoOptimizers {
  explicit TwoOptimizers(bool both_have_hooks)
      : first(optim::SGD({a}, 1.0), {.hook = std::make_shared<HalvesHook>()}),
        second(optim::SGD({b}, 1.0),
               {.hook = both_have_hooks ? int8({.min_elements = 1}) : nullptr}) {}

  Tensor a = parameter({1.0});
  Tensor b = parameter({1.0});
  DistributedOptimizer<optim::SGD> first;
  DistributedOptimizer<optim::SGD> second;
};

// Hooks submit operations while the passes of both end.
TEST_F(HooksTest, OptimizersOfOneBackwardMayEndInAnyOrder) {
  for (const int hooks : {1, 2}) {
    TwoOptimizers both(hooks > 1);
    auto& [a, b, first, second] = both;
    for (int step = 0; step < 5; ++step) {
      first.zero_grad();
      second.zero_grad();
      const bool swapped = (rank() + step) % 2 == 1;
      const Tensor one = (swapped ? b : a).sum() * (rank() + 1);
      const Tensor two = (swapped ? a : b).sum() * (rank() + 1);
      (one + two).backward();
      expect_close(a.grad(), values({mean_rank()}));
      expect_close(b.grad(), values({mean_rank()}), 1e-5);
    }
  }
}

// The last rank ends the passes one after the other; the others end both in one backward.
TEST_F(HooksTest, ARankWithoutAPassStepsTheOptimizersOneByOne) {
  if (size() == 1) GTEST_SKIP() << "one rank has no hook";
  constexpr int steps = 4;
  for (const int hooks : {1, 2}) {
    TwoOptimizers both(hooks > 1);
    auto& [a, b, first, second] = both;
    for (int step = 0; step < steps; ++step) {
      first.zero_grad();
      second.zero_grad();
      if (rank() < last_) (a.sum() + b.sum()).backward();
      const bool swapped = rank() == last_ && step % 2 == 1;
      (swapped ? second : first).step();
      (swapped ? first : second).step();
    }
    const double expected = 1.0 - steps * static_cast<double>(last_) / size();
    expect_close(a, values({expected}));
    expect_close(b, values({expected}), 1e-3);
    expect_same_bits_on_all_ranks({a, b});
  }
}

TEST_F(HooksTest, ThatThrowOnOneRankFailThePassOnAll) {
  using Place = HalvesHook::Place;
  for (const int groups : {0, 2})
    for (const Place place : {Place::reduce, Place::first, Place::second, Place::last}) {
      const auto hook = std::make_shared<HalvesHook>();
      DistributedOptimizer optimizer(optim::SGD({early_, middle_, late_}, 1.0),
                                     {.num_groups = groups, .hook = hook});
      zero_grad();
      backward_of_all(1.0);
      if (size() > 1) {
        if (rank() == last_) hook->throws = place;
        const auto error = error_of<HookFailed>([&] { backward_of_all(1.0); });
        EXPECT_EQ(error.ranks(), std::vector<int>{last_});
        EXPECT_THAT(error.what(), HasSubstr(rank() == last_ ? "the planted error" : "on rank"));
        hook->throws = Place::nowhere;
      }
      barrier({.name = "none waits for the next pass"});
      zero_grad();
      backward_of_all(2.0);
      expect_close(late_.grad(), values({2.0 * mean_rank()}));
      optimizer.step();
    }
}

TEST_F(HooksTest, BucketsMayLoseAndGetParameters) {
  DistributedOptimizer optimizer(
      optim::SGD({early_, middle_, late_}, 1.0),
      {{"early", early_}, {"middle", middle_}, {"late", late_}},
      {.groups = {{"early", "middle"}}, .hook = int8({.block = 16, .min_elements = 1})});
  for (int step = 0; step < 6; ++step) {
    middle_.set_requires_grad(step % 3 != 1);
    optimizer.zero_grad();
    backward_of_all(0.1);
    expect_close(early_.grad(), values({0.1 * mean_rank(), 0.1 * mean_rank()}), 1e-3);
    optimizer.step();
    expect_same_bits_on_all_ranks({early_, middle_, late_});
  }
}

// The rounding error of a gradient is not added to the gradient of another parameter of the same
// size.
TEST_F(HooksTest, GroupsKeepNoErrorOfFrozenParameters) {
  constexpr std::int64_t length = 64;
  const auto weights = [] { return ::torch::zeros({length / 8, 8}).set_requires_grad(true); };
  for (const auto& hook :
       {int8({.block = 16, .min_elements = 1}), power_sgd({.rank = 1, .min_compression = 1.1})}) {
    Tensor one = weights();
    Tensor other = weights();
    DistributedOptimizer optimizer(optim::SGD({one, other}, 1.0), {.num_groups = 1, .hook = hook});
    other.set_requires_grad(false);
    ::torch::manual_seed(3);
    (one * ::torch::randn({length / 8, 8})).sum().backward();
    optimizer.zero_grad();
    one.set_requires_grad(false);
    other.set_requires_grad(true);
    optimizer.zero_grad();  // adapts to it
    // All ranks have the same, which both hooks can send exactly.
    other.sum().backward();
    expect_close(other.grad(), ::torch::ones({length / 8, 8}), 1e-5);
  }
}

class ReplacedParameterTest : public TorchTest {
 protected:
  static constexpr std::int64_t length = 8;
  static Tensor weights() { return ::torch::zeros({length, length}).set_requires_grad(true); }
  static std::shared_ptr<CommunicationHook> make_hook(int kind) {
    if (kind == 0) return int8({.block = 16, .min_elements = 1});
    return power_sgd({.rank = 1, .min_compression = 1.1});
  }

  /// The gradient of each is random, and this rank's own.
  template <typename Optimizer>
  void pass(Optimizer& optimizer, const std::vector<Tensor>& parameters, int step) {
    optimizer.zero_grad();
    ::torch::manual_seed(static_cast<std::uint64_t>(100 * step + rank()));
    Tensor loss = ::torch::zeros({});
    for (const Tensor& parameter : parameters)
      loss = loss + (parameter * ::torch::randn({length, length})).sum();
    loss.backward();
  }

  /// `make(parameters, hook)` returns an optimizer, which calls them "head" and "body" or by
  /// their positions.
  template <typename Make>
  void expect_state_is_found(int kind, const Make& make) {
    std::vector<Tensor> parameters{weights(), weights()};
    const auto hook = make_hook(kind);
    std::optional optimizer(make(parameters, hook));
    pass(*optimizer, parameters, 0);
    parameters[0] = weights();
    optimizer->param_groups()[0].params()[0] = parameters[0];
    for (const int step : {1, 2}) {
      optimizer->zero_grad();  // adapts to it
      pass(*optimizer, parameters, step);
    }
    const StateDict shared = hook->state();
    const StateDict own = hook->per_rank_state();
    pass(*optimizer, parameters, 3);
    const Tensor expected = flat({parameters[0].grad(), parameters[1].grad()});
    optimizer.reset();
    const auto resumed = make_hook(kind);
    resumed->load_state(shared);
    resumed->load_per_rank_state(own);
    auto again = make(parameters, resumed);
    pass(again, parameters, 3);
    EXPECT_TRUE(same_bits(flat({parameters[0].grad(), parameters[1].grad()}), expected));
  }
};

// A program that is started again makes its optimizer with the parameter that has replaced another.
TEST_F(ReplacedParameterTest, StateIsFoundAfterARestart) {
  for (const int kind : {0, 1})
    for (const int groups : {0, 1})
      for (const bool named : {false, true}) {
        SCOPED_TRACE("hook " + std::to_string(kind) + ", groups " + std::to_string(groups) +
                     (named ? ", named" : ""));
        const auto options = [=](const std::shared_ptr<CommunicationHook>& hook) {
          return DistributedOptimizerOptions{.num_groups = groups, .hook = hook};
        };
        expect_state_is_found(kind, [&](const std::vector<Tensor>& list, const auto& hook) {
          const NamedParameters names{{"head", list[0]}, {"body", list[1]}};
          return named ? DistributedOptimizer(optim::SGD(list, 0.1), names, options(hook))
                       : DistributedOptimizer(optim::SGD(list, 0.1), options(hook));
        });
        expect_state_is_found(kind, [&](const std::vector<Tensor>& list, const auto& hook) {
          const NamedParameters names{{"head", list[0]}, {"body", list[1]}};
          return named ? ShardedOptimizer(optim::SGD(list, 0.1), names, options(hook),
                                          Sharding::state)
                       : ShardedOptimizer(optim::SGD(list, 0.1), options(hook), Sharding::state);
        });
      }
}

TEST_F(ReplacedParameterTest, ItsErrorIsNotAddedToTheNewOne) {
  for (const int kind : {0, 1})
    for (const int groups : {0, 1}) {
      std::vector<Tensor> parameters{weights(), weights()};
      DistributedOptimizer optimizer(optim::SGD(parameters, 0.1),
                                     {.num_groups = groups, .hook = make_hook(kind)});
      pass(optimizer, parameters, 0);
      const Tensor now = weights();
      optimizer.param_groups()[0].params()[0] = now;
      optimizer.zero_grad();  // adapts to it
      // All ranks have the same, which both hooks can send exactly.
      now.sum().backward();
      expect_close(now.grad(), ::torch::ones({length, length}), 1e-5);
    }
}

// As in elastic training: the others have trained before, and it begins with the new parameter.
TEST_F(ReplacedParameterTest, ARankThatIsNewMayJoin) {
  for (const bool sharded : {false, true})
    for (const bool named : {false, true}) {
      SCOPED_TRACE((sharded ? "sharded" : "replicated") + std::string(named ? ", named" : ""));
      const bool is_new = rank() == size() - 1;
      std::vector<Tensor> parameters{weights(), weights()};
      const NamedParameters names{{"head", parameters[0]}, {"body", parameters[1]}};
      const auto train = [&](auto optimizer) {
        if (!is_new) {
          parameters[0] = weights();
          optimizer.param_groups()[0].params()[0] = parameters[0];
          optimizer.zero_grad();  // adapts to it
        }
        optimizer.rejoin();
        optimizer.zero_grad();
        ((parameters[0].sum() + parameters[1].sum()) * (rank() + 1)).backward();
        optimizer.step();
        for (const Tensor& parameter : parameters)
          expect_close(parameter, ::torch::full({length, length}, -mean_rank()), 1e-5);
      };
      optim::SGD plain(parameters, 1.0);
      if (sharded) {
        train(named ? ShardedOptimizer(std::move(plain), names)
                    : ShardedOptimizer(std::move(plain)));
      } else {
        train(named ? DistributedOptimizer(std::move(plain), names)
                    : DistributedOptimizer(std::move(plain)));
      }
    }
}

// Frozen on one rank only: the others get an answer, and that rank is told.
TEST_F(HooksTest, BucketsThatDifferAreRefused) {
  if (size() == 1) GTEST_SKIP() << "one rank has no hook";
  DistributedOptimizer optimizer(
      optim::SGD({early_, middle_, late_}, 1.0),
      {{"early", early_}, {"middle", middle_}, {"late", late_}},
      {.groups = {{"early", "middle"}}, .hook = int8({.block = 16, .min_elements = 1})});
  early_.set_requires_grad(rank() != last_);
  middle_.set_requires_grad(rank() != last_);
  if (rank() == last_) {
    EXPECT_THROW(backward(late_, 1.0), InvalidArgument);
  } else {
    backward_of_all(1.0);
  }
  early_.set_requires_grad(true);
  middle_.set_requires_grad(true);
  optimizer.zero_grad();
  backward_of_all(1.0);
  expect_close(late_.grad(), values({mean_rank()}), 1e-3);
}

// Convolutions in PyTorch's other memory order, several passes, and both hooks.
TEST_F(HooksTest, NetworksTrainAlikeOnAllRanks) {
  for (const auto& hook : {int8({.min_elements = 64}), power_sgd({.rank = 2})}) {
    ::torch::manual_seed(5);
    nn::Sequential network(nn::Conv2d(nn::Conv2dOptions(3, 16, 3)), nn::ReLU(), nn::Flatten(),
                           nn::Linear(16 * 36, 10));
    network->parameters()[0].set_data(
        network->parameters()[0].contiguous(at::MemoryFormat::ChannelsLast));
    DistributedOptimizer optimizer(optim::SGD(network->parameters(), 0.1),
                                   network->named_parameters(), {.hook = hook});
    ::torch::manual_seed(100 + static_cast<std::uint64_t>(rank()));
    const Tensor images = ::torch::randn({8, 3, 8, 8});
    const Tensor labels = ::torch::randint(10, {8}, ::torch::kLong);
    double first = 0.0;
    double loss = 0.0;
    for (int step = 0; step < 10; ++step) {
      optimizer.zero_grad();
      loss = 0.0;
      for (int pass = 0; pass < 2; ++pass) {
        const Tensor one = nn::functional::cross_entropy(network->forward(images), labels) / 2;
        one.backward();
        loss += one.item<double>();
      }
      if (step == 0) first = loss;
      optimizer.step();
      expect_same_bits_on_all_ranks(network->parameters());
    }
    EXPECT_LT(loss, first);
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
