// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "support.hpp"

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
using testing::HasSubstr;
using ::torch::Tensor;

constexpr int shards = 12;

struct ReproducibleNetImpl : nn::Module {
  ReproducibleNetImpl()
      : convolution(register_module("convolution", nn::Conv2d(2, 5, 3))),
        hidden(register_module("hidden", nn::Linear(80, 33))),
        head(register_module("head", nn::Linear(33, 3))),
        sometimes(register_module("sometimes", nn::Linear(3, 3))),
        never(register_module("never", nn::Linear(3, 3))) {
    convolution->weight.set_data(convolution->weight.to(at::MemoryFormat::ChannelsLast));
  }
  Tensor forward(const Tensor& x, int shard) {
    Tensor result = ::torch::gelu(hidden(convolution(x).flatten(1)));
    result = head(nn::functional::dropout(result, nn::functional::DropoutFuncOptions().p(0.3)));
    return shard == 3 ? sometimes(result) : result;
  }
  nn::Conv2d convolution;
  nn::Linear hidden, head, sometimes, never;
};
TORCH_MODULE(ReproducibleNet);

// Each shard is a function of the step and its number.
Tensor loss_of_shard(ReproducibleNet& model, int step, int shard) {
  ::torch::manual_seed(static_cast<std::uint64_t>(1000 * step + shard));
  const Tensor x = ::torch::randn({4, 2, 6, 6});
  return model->forward(x, shard).square().mean();
}

struct Trained {
  std::vector<Tensor> parameters;
  std::vector<double> losses;
};

Trained train(const ProcessSet& set) {
  ::torch::manual_seed(3);
  ReproducibleNet model;
  ReproducibleBackward backward(model, {.shards = shards, .process_set = set});
  ::torch::optim::AdamW optimizer(model->parameters(), 0.01);
  Trained trained;
  for (int step = 0; step < 8; ++step) {
    trained.losses.push_back(
        backward.run([&](int shard) { return loss_of_shard(model, step, shard); }));
    optimizer.step();
  }
  EXPECT_FALSE(model->never->weight.grad().defined());
  EXPECT_TRUE(model->sometimes->weight.grad().defined());
  trained.parameters = model->parameters();
  return trained;
}

class ReproducibleBackwardTest : public testing::Test {
 private:
  Session session_{};
};

// Sets of one rank compute all shards themselves.
TEST_F(ReproducibleBackwardTest, EveryNumberOfRanksTrainsTheSameModel) {
  const Trained expected = train({});
  for (int ranks = 1; ranks <= size(); ++ranks) {
    std::vector<int> members;
    for (int i = 0; i < ranks; ++i) members.push_back(i);
    const ProcessSet set = add_process_set(members);
    if (set.rank() >= 0) {
      const Trained found = train(set);
      EXPECT_EQ(found.losses, expected.losses);
      for (std::size_t i = 0; i < expected.parameters.size(); ++i)
        EXPECT_TRUE(at::equal(found.parameters[i], expected.parameters[i])) << i;
    }
    barrier();
  }
}

TEST_F(ReproducibleBackwardTest, TheGradientIsThatOfTheGlobalBatch) {
  ::torch::manual_seed(3);
  ReproducibleNet model;
  ReproducibleBackward backward(*model, {.shards = shards});
  backward.run([&](int shard) { return loss_of_shard(model, 0, shard); });
  const Tensor found = model->hidden->weight.grad().clone();
  model->zero_grad();
  for (int shard = 0; shard < shards; ++shard) (loss_of_shard(model, 0, shard) / shards).backward();
  EXPECT_TRUE(at::allclose(found, model->hidden->weight.grad(), 1e-4, 1e-7));
}

TEST_F(ReproducibleBackwardTest, AFailureIsKnownEverywhere) {
  ReproducibleNet model;
  ReproducibleBackward backward(model, {.shards = shards});
  const int failing = size() - 1;
  const auto run = [&](bool fails) {
    return backward.run([&](int shard) {
      if (fails && rank() == failing) throw std::runtime_error("no data");
      return loss_of_shard(model, 0, shard);
    });
  };
  if (rank() == failing) {
    EXPECT_THROW(run(true), std::runtime_error);
  } else {
    EXPECT_THROW(run(true), BackwardFailed);
  }
  EXPECT_GT(run(false), 0.0);
}

TEST_F(ReproducibleBackwardTest, ArgumentsAreChecked) {
  const Tensor tensor = ::torch::ones({2}, ::torch::requires_grad());
  EXPECT_THROW(ReproducibleBackward({{"a", tensor}, {"a", tensor}}, {.shards = 2}),
               InvalidArgument);
  EXPECT_THROW(ReproducibleBackward({{"n", ::torch::ones({2}, ::torch::kInt)}}, {.shards = 2}),
               InvalidArgument);
  if (size() > 1) return;
  ReproducibleBackward backward({{"a", tensor}}, {.shards = 2});
  try {
    backward.run([&](int /*shard*/) { return tensor * 2; });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("the loss of shard 0 is f32 [2]"));
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
