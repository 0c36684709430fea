// SPDX-License-Identifier: Apache-2.0
// FullySharded used by mistake: each error names what to do instead.
#include "fully_sharded_network.hpp"

#include <sstream>

namespace kolo::internal::testing_support {
namespace {

using FullyShardedMisuse = TorchTest;

TEST_F(FullyShardedMisuse, FreedParametersAreNotANumber) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  const Tensor weight = model->blocks[0]->up->weight;
  EXPECT_TRUE(std::isnan(weight.sum().item<float>()));
  EXPECT_EQ(weight.sizes(), ::torch::IntArrayRef({14, 7}));
  const ::torch::NoGradGuard no_grad;
  EXPECT_TRUE((weight * 2).isnan().all().item<bool>());
  EXPECT_ANY_THROW(weight.mul_(2));
  EXPECT_ANY_THROW(weight.copy_(::torch::zeros({14, 7})));
  {
    const auto whole = sharded.gather();
    EXPECT_TRUE(same_bits(weight.contiguous(), make_net<Net>()->blocks[0]->up->weight));
  }
  EXPECT_TRUE(std::isnan(weight.sum().item<float>()));
}

TEST_F(FullyShardedMisuse, AnOptimizerOfTheModelsParametersIsRefused) {
  auto model = make_net<ShardedNet>();
  const FullySharded sharded(model);
  EXPECT_ANY_THROW(optim::SGD(model->parameters(), 0.1));
}

TEST_F(FullyShardedMisuse, UsesMistakenlyMadeAreRefused) {
  auto plain = make_net<Net>();
  EXPECT_THAT(error_of<Error>([&] { FullySharded{plain}; }).what(),
              testing::HasSubstr("must be a unit"));
  auto model = make_net<ShardedNet>();
  EXPECT_THROW(FullySharded(model, {.op = ReduceOp::adasum}), InvalidArgument);
  EXPECT_THROW(FullySharded(model, {.units_ahead = -1}), InvalidArgument);
  if (size() > 1) {
    EXPECT_THROW(FullySharded(model, {.units_ahead = rank()}), Mismatch);
  }
}

TEST_F(FullyShardedMisuse, AModelBelongsToOneFullySharded) {
  auto model = make_net<ShardedNet>();
  const FullySharded first(model);
  EXPECT_THAT(error_of<Error>([&] { FullySharded{model}; }).what(),
              testing::StartsWith("FullySharded: another one has this model"));
}

TEST_F(FullyShardedMisuse, AWriteToAFreedParameterIsNoticed) {
  auto model = make_net<ShardedNet>();
  const FullySharded sharded(model);
  {
    const ::torch::NoGradGuard no_grad;
    model->blocks[1]->up->bias.zero_();
  }
  const auto error = error_of<InvalidArgument>([&] { loss_of(model, 0); });
  EXPECT_THAT(error.what(), testing::HasSubstr("'block1.up.bias' was written to"));
}

TEST_F(FullyShardedMisuse, CallsForWholeParametersAreRefused) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  EXPECT_THROW(DistributedOptimizer(optim::SGD(sharded.parameters(), 0.1)), InvalidArgument);
  EXPECT_THROW(ShardedOptimizer(optim::SGD(sharded.parameters(), 0.1)), InvalidArgument);
  EXPECT_THROW((void)state(*model), InvalidArgument);
  const StateDict whole = sharded.full_state();
  {
    const auto guard = sharded.gather();
    expect_same_state(state(*model), whole);
    EXPECT_THROW(sharded.load_full_state(whole), InvalidArgument);
  }
  sharded.load_full_state(whole);
  const Tensor loss = loss_of(model, 0);
  EXPECT_THROW(loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true), InvalidArgument);
}

TEST_F(FullyShardedMisuse, FreedParametersAreNeitherSavedNorSent) {
  auto model = make_net<ShardedNet>();
  const FullySharded sharded(model);
  EXPECT_THROW(broadcast_parameters(*model, 0), InvalidArgument);
  EXPECT_THROW(DistributedGradients(*model, {}), InvalidArgument);
  EXPECT_THROW(allreduce_(model->blocks[0]->up->bias, {.name = "freed"}), InvalidArgument);
  EXPECT_THROW((void)state_view(NamedParameters{{"bias", model->blocks[0]->up->bias}}),
               InvalidArgument);
  std::ostringstream stream;
  EXPECT_THROW(::torch::save(model, stream), InvalidArgument);
  EXPECT_THROW(::torch::save(model->blocks[0], stream), InvalidArgument);
}

// A move gives them new memory, which has the same values.
TEST_F(FullyShardedMisuse, FreedParametersThatWereMovedAreNotSaved) {
  auto model = make_net<ShardedNet>();
  const FullySharded sharded(model);
  model->to(::torch::kDouble);
  std::ostringstream stream;
  EXPECT_THROW(::torch::save(model, stream), InvalidArgument);
  EXPECT_THROW((void)state(*model), InvalidArgument);
}

/// A module that has functions of these names of its own.
struct OwnFunctionsImpl : nn::Module {
  Tensor forward(const Tensor& input) { return layer->forward(input); }
  void save(const std::string& path) { saved = path; }
  void load(const std::string& path) { saved = path; }
  void zero_grad() { saved.clear(); }
  nn::Linear layer = register_module("layer", nn::Linear(5, 3));
  std::string saved{};
};
TORCH_MODULE(OwnFunctions);

TEST_F(FullyShardedMisuse, AModuleKeepsFunctionsOfItsOwn) {
  Sharded<OwnFunctions> model;
  const FullySharded sharded(model);
  model->save("there");
  EXPECT_EQ(model->saved, "there");
  model->zero_grad();
  EXPECT_EQ(model->saved, "");
  EXPECT_EQ(loss_of(model, 0).dim(), 0);
}

TEST_F(FullyShardedMisuse, AModelThatIsHeldWholeIsSavedByLibTorch) {
  auto model = make_net<ShardedNet>();
  const FullySharded sharded(model);
  std::stringstream stream;
  {
    const auto whole = sharded.gather();
    ::torch::save(model, stream);
  }
  EXPECT_THROW(::torch::load(model, stream), InvalidArgument);
  stream.seekg(0);
  auto loaded = make_net<Net>();
  {
    const ::torch::NoGradGuard no_grad;
    for (auto& parameter : loaded->parameters()) parameter.zero_();
  }
  ::torch::load(loaded, stream);
  expect_same_state(state(*loaded), sharded.full_state());
}

// The usual call of a LibTorch program in place of the optimizer's.
TEST_F(FullyShardedMisuse, TheModelZeroesTheGradientsOfItsShards) {
  const auto step = [](auto& model, auto& /*gradients*/, auto& optimizer, int number) {
    model->zero_grad();
    loss_of(model, number).backward();
    optimizer.step();
  };
  const optim::AdamWOptions options(0.01);
  expect_same_state(train_sharded<optim::AdamW>(options, step, 4),
                    train_replicated<optim::AdamW>(options, step, 4));
}

}  // namespace
}  // namespace kolo::internal::testing_support
