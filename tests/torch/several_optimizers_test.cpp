// SPDX-License-Identifier: Apache-2.0
// DistributedOptimizer: several optimizers in one program, some of which only some ranks use.
#include "support.hpp"

#include <stdexcept>
#include <string>

namespace kolo::internal::testing_support {
namespace {

namespace optim = ::torch::optim;

using SeveralOptimizersTest = TorchTest;

// Rank 0 has a pass whose end begins with the second optimizer, and in which it lacks a parameter
// of the first that rank 1 uses. The last rank has no pass: it ends the first optimizer's pass
// before it begins the second's.
TEST_F(SeveralOptimizersTest, ARankWithoutAPassStepsThemInAnyOrder) {
  if (size() < 3) GTEST_SKIP() << "on three ranks and more";
  ::torch::Tensor used = parameter({1.0});
  ::torch::Tensor rare = parameter({1.0});
  ::torch::Tensor other = parameter({1.0});
  DistributedOptimizer first(optim::SGD({used, rare}, 1.0), {{"used", used}, {"rare", rare}});
  DistributedOptimizer second(optim::SGD({other}, 1.0), {{"other", other}});
  const bool has_pass = rank() + 1 < size();
  for (int step = 0; step < 4; ++step) {
    first.zero_grad();
    second.zero_grad();
    if (has_pass) {
      // Backward goes through the later part of the graph first.
      ::torch::Tensor loss = (used * 1.0).sum();
      if (rank() > 0) loss = loss + (rare * 1.0).sum();
      (rank() > 0 ? (other * 1.0).sum() + loss : loss + (other * 1.0).sum()).backward();
    }
    if (has_pass || step % 2 == 0) {
      first.step();
      second.step();
    } else {
      second.step();
      first.step();
    }
  }
  const double with_pass = (size() - 1.0) / size();
  expect_close(used, values({1.0 - 4 * with_pass}));
  expect_close(other, values({1.0 - 4 * with_pass}));
  expect_close(rare, values({1.0 - 4 * (with_pass - 1.0 / size())}));
}

// Rank 0 adds a parameter to each of two optimizers. Even ranks end the first optimizer's pass
// last, odd ranks the second one's. If `last_abstains`, the last rank steps without backward, and
// steps the second optimizer first if `swapped`.
void expect_that_added_parameters_are_named(bool last_abstains, bool swapped = false) {
  std::vector<::torch::Tensor> weights;
  for (int i = 0; i < 4; ++i) weights.push_back(parameter({1.0}));
  DistributedOptimizer first(optim::SGD({weights[0]}, 1.0), {{"a", weights[0]}});
  DistributedOptimizer second(optim::SGD({weights[1]}, 1.0), {{"b", weights[1]}});
  if (rank() == 0) {
    first.add_param_group(optim::OptimizerParamGroup({weights[2]}));
    second.add_param_group(optim::OptimizerParamGroup({weights[3]}));
  }
  first.zero_grad();
  second.zero_grad();
  const auto named = testing::HasSubstr("is on rank 0 only");
  if (rank() + 1 < size() || !last_abstains) {
    const auto product = [&](std::size_t of) {
      return rank() == 0 ? weights[of] * weights[of + 2] : weights[of] * 1.0;
    };
    // Backward begins with the part of the graph that was built last.
    const bool is_odd = rank() % 2 == 1;
    const ::torch::Tensor part = product(is_odd ? 1 : 0);
    const ::torch::Tensor loss = (part + product(is_odd ? 0 : 1)).sum();
    EXPECT_THAT(error_of<Mismatch>([&] { loss.backward(); }).what(), named);
  } else {
    for (auto* const optimizer : {swapped ? &second : &first, swapped ? &first : &second})
      EXPECT_THAT(error_of<Mismatch>([&] { optimizer->step(); }).what(), named);
  }
  expect_close(allreduce(values({1.0}), {.op = ReduceOp::sum}), values({1.0 * size()}));
}

TEST_F(SeveralOptimizersTest, ParametersThatOneRankAddsAreNamedWhereverRanksBegin) {
  if (size() == 1) GTEST_SKIP() << "on several ranks";
  expect_that_added_parameters_are_named(/*last_abstains=*/false);
  for (const bool swapped : {false, true})
    expect_that_added_parameters_are_named(/*last_abstains=*/true, swapped);
}

// The second optimizer has no step of its own in the last round of an epoch, which rank 0 makes
// alone.
TEST_F(SeveralOptimizersTest, ReductionsBeforeAJoinAreOfNoLaterStep) {
  ::torch::Tensor shared = parameter({1.0});
  ::torch::Tensor own = parameter({1.0});
  DistributedOptimizer owner(optim::SGD({shared}, 1.0), {{"shared", shared}});
  DistributedOptimizer second(optim::SGD({shared, own}, 1.0), {{"shared", shared}, {"own", own}});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int round = 0; round < (rank() == 0 ? 2 : 1); ++round) {
      owner.zero_grad();
      if (round == 0) {
        backward(shared * own, rank() + 1);
        owner.step();
        second.step();
      } else {
        backward(shared, 1.0);
        owner.step();
      }
    }
    join();
    // None of the ranks has a pass.
    shared.mutable_grad().reset();
    own.mutable_grad().reset();
    second.step();
    expect_same_bits_on_all_ranks({own});
  }
}

TEST_F(SeveralOptimizersTest, AGradientThatIsRefusedEndsOnlyItsOwnPass) {
  ::torch::Tensor a = parameter({1.0, 2.0});
  ::torch::Tensor b = parameter({1.0});
  ::torch::Tensor c = parameter({1.0});
  DistributedOptimizer first(optim::SGD({a, b}, 1.0), {{"a", a}, {"b", b}});
  DistributedOptimizer second(optim::SGD({c}, 1.0), {{"c", c}});
  const auto pass = [&] { ((a.sum() + b.sum() + c.sum()) * (rank() + 1)).backward(); };
  if (rank() == 0) {
    a.mutable_grad() = values({0.0, 0.0});
    b.mutable_grad() = a.grad().slice(0, 1);  // in the same memory
    EXPECT_EQ(error_of<InvalidArgument>(pass).tensor(), "b");
  } else {
    EXPECT_EQ(error_of<BackwardFailed>(pass).ranks(), std::vector<int>{0});
  }
  expect_close(c.grad(), values({mean_rank()}));
  for (::torch::Tensor* w : {&a, &b}) w->mutable_grad().reset();
  pass();
  expect_close(a.grad(), values({mean_rank(), mean_rank()}));
  expect_close(c.grad(), values({2.0 * mean_rank()}));
}

// An encoder and a decoder, trained by one backward, and a critic that has passes of its own.
class PartsTest : public TorchTest {
 protected:
  enum class Throws { never, before_decoder, before_encoder };

  struct Part {
    explicit Part(const ::torch::Tensor& weight) { module.register_parameter("w", weight); }
    ::torch::nn::Module module{};
    DistributedGradients gradients{module};
  };

  [[nodiscard]] ::torch::Tensor loss(Throws when) {
    const auto fail = [](const ::torch::Tensor&) -> ::torch::Tensor {
      throw std::runtime_error("bad hook");
    };
    const ::torch::Tensor code = encoder_ * (rank() + 1.0);
    if (when == Throws::before_encoder) code.register_hook(fail);
    const ::torch::Tensor decoded = code * decoder_;
    if (when == Throws::before_decoder) decoded.register_hook(fail);
    return decoded.sum();
  }

  // A backward that throws on the last rank, after which all ranks begin anew.
  template <typename Backward>
  void fail(Throws when, const Backward& backward_of) {
    if (rank() + 1 == size()) {
      EXPECT_EQ(error_of<std::runtime_error>([&] { backward_of(loss(when)); }).what(),
                std::string("bad hook"));
    } else {
      const auto pass = [&] { backward_of(loss(Throws::never)); };
      EXPECT_EQ(error_of<BackwardFailed>(pass).ranks(), std::vector<int>{size() - 1});
    }
    barrier({.name = "none waits for the next pass"});
    forget();
  }
  void fail(Throws when) {
    fail(when, [](const ::torch::Tensor& loss) { loss.backward(); });
  }

  void expect_next_passes() {
    for (int pass = 0; pass < 2; ++pass) {
      loss(Throws::never).backward();
      expect_close(encoder_.grad(), values({3.0 * mean_rank()}));
      expect_close(decoder_.grad(), values({2.0 * mean_rank()}));
      backward(critic_, rank() + 1.0);
      expect_close(critic_.grad(), values({mean_rank()}));
      forget();
    }
  }

  void forget() {
    for (::torch::Tensor* w : {&encoder_, &decoder_, &critic_}) w->mutable_grad().reset();
  }

  ::torch::Tensor encoder_ = parameter({2.0});
  ::torch::Tensor decoder_ = parameter({3.0});
  ::torch::Tensor critic_ = parameter({1.0});
};

TEST_F(PartsTest, AnExceptionIsThrownForThePartsThatBackwardHasNotComeTo) {
  const Part encoder(encoder_);
  const Part decoder(decoder_);
  const Part critic(critic_);
  for (const Throws when : {Throws::before_encoder, Throws::before_decoder}) {
    for (int round = 0; round < 2; ++round) fail(when);
    expect_next_passes();
  }
}

TEST_F(PartsTest, OptimizersStepAlikeAfterAnException) {
  DistributedOptimizer encoder(optim::SGD({encoder_}, 1.0), {{"w", encoder_}});
  DistributedOptimizer decoder(optim::SGD({decoder_, critic_}, 1.0),
                               {{"w", decoder_}, {"critic", critic_}});
  fail(Throws::before_encoder);
  loss(Throws::never).backward();
  encoder.step();
  decoder.step();
  expect_close(encoder_, values({2.0 - 3.0 * mean_rank()}));
  expect_close(decoder_, values({3.0 - 2.0 * mean_rank()}));
}

TEST_F(PartsTest, AnExceptionDoesNotConcernPartsThatWouldNotHaveReduced) {
  const Part encoder(encoder_);
  const Part decoder(decoder_);
  const Part critic(critic_);
  {
    const NoSync local = encoder.gradients.no_sync();
    fail(Throws::before_encoder);
  }
  expect_next_passes();
  // Backward does not come to the encoder's parameter.
  fail(Throws::before_decoder,
       [&](const ::torch::Tensor& loss) { loss.backward({}, false, false, {{decoder_}}); });
  expect_next_passes();
}

}  // namespace
}  // namespace kolo::internal::testing_support
