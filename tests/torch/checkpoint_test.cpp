// SPDX-License-Identifier: Apache-2.0
// The state of training as the parts of a checkpoint.
#include "support.hpp"

#include <optional>

#include "../training/scratch_directory.hpp"

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;

class CheckpointTest : public TorchTest {
 protected:
  CheckpointTest() {
    if (rank() == 0) directory_.emplace();
  }
  [[nodiscard]] std::filesystem::path directory() const {
    return rank() == 0 ? directory_->path() : "/known/to/rank/0/only";
  }

 private:
  std::optional<ScratchDirectory> directory_;
};

// A model with buffers and dropout, an optimizer with state, and random data on each rank.
struct Training {
  Training()
      : model(nn::Linear(4, 8), nn::BatchNorm1d(8), nn::Dropout(0.5), nn::Linear(8, 1)),
        optimizer(optim::Adam(model->parameters(), optim::AdamOptions(0.05)),
                  model->named_parameters()) {}

  void steps(int count) {
    for (; count > 0; --count) {
      optimizer.zero_grad();
      const ::torch::Tensor input = ::torch::randn({6, 4});
      model->forward(input).square().mean().backward();
      optimizer.step();
    }
  }

  nn::Sequential model;
  DistributedOptimizer<optim::Adam> optimizer;
};

void expect_same_bits(const std::vector<::torch::Tensor>& a,
                      const std::vector<::torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << i;
}

TEST_F(CheckpointTest, AResumedTrainingIsTheUninterruptedOneBitForBit) {
  ::torch::manual_seed(17 + static_cast<unsigned>(rank()));
  Training whole;
  broadcast_parameters(*whole.model, 0);
  Checkpointer checkpoints({.directory = directory()});
  whole.steps(3);
  checkpoints.save(3, {{"model", to_bytes(*whole.model)}, {"optimizer", to_bytes(whole.optimizer)}},
                   {.own = {{"random", random_state()}}});
  whole.steps(4);

  ::torch::manual_seed(99);
  Training resumed;
  set_learning_rate(resumed.optimizer, 123.0);
  resumed.steps(2);
  const std::optional<Checkpoint> found = checkpoints.load_latest();
  ASSERT_TRUE(found.has_value());
  from_bytes(found->part("model"), *resumed.model);
  from_bytes(found->part("optimizer"), resumed.optimizer);
  set_random_state(found->own_part("random"));
  resumed.steps(4);
  expect_same_bits(resumed.model->parameters(), whole.model->parameters());
  // Statistics differ between ranks; rank 0's were saved.
  if (rank() == 0) expect_same_bits(resumed.model->buffers(), whole.model->buffers());
  expect_same_bits_on_all_ranks(resumed.model->parameters());
}

TEST_F(CheckpointTest, RandomNumbersGoOnWhereTheyWere) {
  ::torch::manual_seed(1);
  (void)::torch::randn({7});
  const std::string state = random_state();
  const ::torch::Tensor first = ::torch::cat({::torch::randn({5}), ::torch::rand({5})});
  set_random_state(state);
  const ::torch::Tensor second = ::torch::cat({::torch::randn({5}), ::torch::rand({5})});
  EXPECT_TRUE(same_bits(first, second));
  EXPECT_THROW(set_random_state("nonsense"), InvalidArgument);
  EXPECT_THROW(set_random_state(to_bytes(std::vector<::torch::Tensor>{})), InvalidArgument);
  EXPECT_THROW(set_random_state(to_bytes(std::vector<::torch::Tensor>{::torch::zeros({3})})),
               InvalidArgument);
}

TEST_F(CheckpointTest, TensorsComeBack) {
  const std::vector<::torch::Tensor> saved = {::torch::randn({2, 3}), ::torch::arange(5)};
  std::vector<::torch::Tensor> loaded = {::torch::ones({1})};
  from_bytes(to_bytes(saved), loaded);
  expect_same_bits(saved, loaded);
}

TEST_F(CheckpointTest, BytesOfSomethingElseAreRefused) {
  Training training;
  const auto error = error_of<InvalidArgument>([&] { from_bytes("no archive", *training.model); });
  EXPECT_THAT(error.what(), HasSubstr("cannot be read as this module"));
  error_of<InvalidArgument>([&] { from_bytes("", training.optimizer); });
  nn::Sequential other(nn::Linear(2, 2));
  error_of<InvalidArgument>([&] { from_bytes(to_bytes(*other), *training.model); });
}

TEST_F(CheckpointTest, AModuleOfOtherShapesIsRefusedAndUnchanged) {
  const nn::Sequential saved(nn::Linear(2, 6), nn::Linear(6, 1));
  nn::Sequential other(nn::Linear(2, 7), nn::Linear(7, 1));
  std::vector<::torch::Tensor> before;
  for (const auto& parameter : other->parameters()) before.push_back(parameter.detach().clone());
  const auto error = error_of<InvalidArgument>([&] { from_bytes(to_bytes(*saved), *other); });
  EXPECT_THAT(error.what(), HasSubstr("'0.weight' has the shape [6, 2] in them and [7, 2] here"));
  expect_same_bits(before, other->parameters());
  error_of<InvalidArgument>([&] { from_bytes(to_bytes(saved), other); });
  expect_same_bits(before, other->parameters());
}

}  // namespace
}  // namespace kolo::internal::testing_support
