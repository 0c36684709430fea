// SPDX-License-Identifier: Apache-2.0
// The state of modules, and of training, as the parts of a checkpoint and as safetensors files.
#include "adam_training.hpp"
#include "support.hpp"

#include <optional>

#include "../training/scratch_directory.hpp"

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
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

TEST_F(CheckpointTest, AResumedTrainingIsTheUninterruptedOneBitForBit) {
  ::torch::manual_seed(17 + static_cast<unsigned>(rank()));
  AdamTraining whole;
  broadcast_parameters(*whole.model, 0);
  Checkpointer checkpoints({.directory = directory()});
  whole.steps(3);
  checkpoints.save_async(
      3, {{"model", state_view(*whole.model)}, {"optimizer", state_view(whole.optimizer)}},
      {.per_rank = {{"random", random_state()}}});
  whole.steps(4);  // while it is being written

  ::torch::manual_seed(99);
  AdamTraining resumed;
  set_learning_rate(resumed.optimizer, 123.0);
  resumed.steps(2);
  const std::optional<Checkpoint> found = checkpoints.load_latest();
  ASSERT_TRUE(found.has_value());
  load_state(*resumed.model, found->part("model"));
  load_state(resumed.optimizer, found->part("optimizer"));
  load_random_state(found->per_rank_part("random"));
  resumed.steps(4);
  expect_same_bits(resumed.model->parameters(), whole.model->parameters());
  // Statistics differ between ranks; rank 0's were saved.
  if (rank() == 0) expect_same_bits(resumed.model->buffers(), whole.model->buffers());
  expect_same_bits_on_all_ranks(resumed.model->parameters());
}

TEST_F(CheckpointTest, RandomNumbersGoOnWhereTheyWere) {
  ::torch::manual_seed(1);
  (void)::torch::randn({7});
  const StateDict before = random_state();
  const ::torch::Tensor first = ::torch::cat({::torch::randn({5}), ::torch::rand({5})});
  load_random_state(before);
  const ::torch::Tensor second = ::torch::cat({::torch::randn({5}), ::torch::rand({5})});
  EXPECT_TRUE(same_bits(first, second));
  EXPECT_THROW(load_random_state("nonsense"), InvalidArgument);
  EXPECT_THROW(load_random_state(state(std::vector<::torch::Tensor>{})), InvalidArgument);
  EXPECT_THROW(load_random_state(state(std::vector<::torch::Tensor>{::torch::zeros({3})})),
               InvalidArgument);
}

TEST_F(CheckpointTest, TensorsComeBack) {
  const std::vector<::torch::Tensor> saved = {::torch::randn({2, 3}), ::torch::arange(5)};
  std::vector<::torch::Tensor> loaded = {::torch::ones({1})};
  load_state(loaded, state(saved));
  expect_same_bits(saved, loaded);
}

TEST_F(CheckpointTest, BytesOfSomethingElseAreRefused) {
  AdamTraining training;
  const auto error = error_of<InvalidArgument>([&] { load_state(*training.model, "no archive"); });
  EXPECT_THAT(error.what(), HasSubstr("cannot be loaded as this module"));
  error_of<InvalidArgument>([&] { load_state(training.optimizer, ""); });
  nn::Sequential other(nn::Linear(2, 2));
  error_of<InvalidArgument>([&] { load_state(*training.model, state(*other)); });
}

TEST_F(CheckpointTest, AModuleOfOtherShapesIsRefusedAndUnchanged) {
  const nn::Sequential saved(nn::Linear(2, 6), nn::Linear(6, 1));
  nn::Sequential other(nn::Linear(2, 7), nn::Linear(7, 1));
  std::vector<::torch::Tensor> before;
  for (const auto& parameter : other->parameters()) before.push_back(parameter.detach().clone());
  const auto error = error_of<InvalidArgument>([&] { load_state(*other, state(*saved)); });
  EXPECT_THAT(error.what(),
              HasSubstr("'0.bias' has shape [6] in the state but [7] in the program"));
  expect_same_bits(before, other->parameters());
  error_of<InvalidArgument>([&] { load_state(other, state(saved)); });
  expect_same_bits(before, other->parameters());
}

TEST_F(CheckpointTest, FilesHaveTheNamesOfPyTorch) {
  AdamTraining training;
  training.steps(3);
  Checkpointer checkpoints({.directory = directory()});
  const auto path = checkpoints.save(
      3, {{"model", state(*training.model)}, {"optimizer", state(training.optimizer)}},
      {.per_rank = {{"random", random_state()}}});
  if (rank() != 0) return;
  const StateDict file = kolo::load_safetensors(path);
  for (const char* name : {"model.0.weight", "model.0.bias", "model.1.running_mean",
                           "model.1.num_batches_tracked", "model.3.weight", "per_rank.0.random.cpu",
                           "optimizer.state.0.exp_avg", "optimizer.state.5.exp_avg_sq"})
    EXPECT_TRUE(file.tensors.contains(name)) << name;
  EXPECT_TRUE(same_bits(to_tensor(file.tensors.at("model.0.weight")),
                        training.model->named_parameters()["0.weight"]));
  EXPECT_EQ(to_tensor(file.tensors.at("optimizer.state.0.step")).item<std::int64_t>(), 3);
  EXPECT_EQ(file.metadata.at("optimizer.class"), "Adam");
  EXPECT_EQ(file.metadata.at("optimizer.param_groups"),
            R"([{"amsgrad":false,"betas":[0.9,0.999],"eps":1e-08,"lr":0.05,)"
            R"("params":[0,1,2,3,4,5],"weight_decay":0.0}])");

  nn::Sequential other(nn::Linear(4, 8), nn::BatchNorm1d(8), nn::Dropout(0.5), nn::Linear(8, 1));
  load_safetensors(path, *other, {.prefix = "model."});
  expect_same_bits(other->parameters(), training.model->parameters());
  expect_same_bits(other->buffers(), training.model->buffers());
}

/// State that is neither a parameter nor a buffer: its own `save` and `load` keep it.
struct Counting : nn::Module {
  explicit Counting(std::int64_t start = 0)
      : layer(register_module("layer", nn::Linear(2, 2))), count(start) {}
  void save(::torch::serialize::OutputArchive& archive) const override {
    nn::Module::save(archive);
    archive.write("count", c10::IValue(count));
  }
  void load(::torch::serialize::InputArchive& archive) override {
    nn::Module::load(archive);
    c10::IValue saved;
    archive.read("count", saved);
    count = saved.toInt();
  }
  nn::Linear layer;
  std::int64_t count;
};

struct Outer : nn::Module {
  explicit Outer(std::int64_t start)
      : inner(register_module("inner", std::make_shared<Counting>(start))),
        bias(register_parameter("bias", ::torch::randn({3}))) {}
  std::shared_ptr<Counting> inner;
  ::torch::Tensor bias;
};

TEST_F(CheckpointTest, AModulesOwnSaveAndLoadAreCalled) {
  Outer saved(7);
  Outer loaded(0);
  load_state(loaded, state(saved));
  EXPECT_EQ(loaded.inner->count, 7);
  expect_same_bits(loaded.parameters(), saved.parameters());

  Outer committed(3);
  elastic::State parts;
  parts.add("model", committed);
  parts.commit();
  committed.inner->count = 4;
  parts.restore();
  EXPECT_EQ(committed.inner->count, 3);
}

TEST_F(CheckpointTest, ModulesOfOtherKindsComeBack) {
  ::torch::jit::Module jit("jit");
  jit.register_parameter("weight", ::torch::randn({2, 3}), /*is_buffer=*/false);
  jit.register_buffer("count", ::torch::full({1}, 5));
  const StateDict saved = state(jit);
  EXPECT_TRUE(saved.tensors.contains("weight"));
  const ::torch::Tensor before = jit.attr("weight").toTensor().clone();
  elastic::State parts;
  parts.add("jit", jit);
  parts.commit();
  for (int round = 0; round < 2; ++round) {
    {
      const ::torch::NoGradGuard no_grad;
      jit.attr("weight").toTensor().zero_();
    }
    if (round == 0) load_state(jit, saved);
    if (round == 1) parts.restore();
    EXPECT_TRUE(same_bits(jit.attr("weight").toTensor(), before));
  }
  nn::Linear holder(2, 2);
  EXPECT_EQ(state(holder), state(*holder));
}

/// The weight of its layers is one tensor.
struct Tied : nn::Module {
  ::torch::Tensor embedding = register_parameter("embedding", ::torch::randn({4, 2}));
  ::torch::Tensor head = register_parameter("head", embedding);
  ::torch::Tensor bias = register_parameter("bias", ::torch::randn({4}));
};

TEST_F(CheckpointTest, AFileMayHoldOneNameOfATiedWeight) {
  const ScratchDirectory folder;
  const auto path = folder.path() / "tied.safetensors";
  for (const char* const name : {"embedding", "head"}) {
    const Tied other;
    save_safetensors(path, {{name, other.head}, {"bias", other.bias}});
    Tied loaded;
    const UnmatchedNames unmatched = load_safetensors(path, loaded);
    EXPECT_TRUE(unmatched.missing.empty());
    expect_same_bits(loaded.parameters(), other.parameters());
  }
  save_safetensors(path, {{"bias", ::torch::randn({4})}});
  Tied loaded;
  const auto error = error_of<InvalidArgument>([&] { load_safetensors(path, loaded); });
  EXPECT_THAT(error.what(), HasSubstr("'embedding', 'head'"));
}

TEST_F(CheckpointTest, ATensorThatSafetensorsLackMakesAnArchive) {
  struct Complex : nn::Module {
    ::torch::Tensor weight = register_parameter("weight", ::torch::randn({3}, at::kComplexFloat));
  };
  Complex saved, loaded;
  load_state(static_cast<nn::Module&>(loaded), state(static_cast<const nn::Module&>(saved)));
  EXPECT_TRUE(::torch::equal(saved.weight, loaded.weight));
  EXPECT_THROW(save_safetensors("/nowhere", saved), InvalidArgument);
}

class WeightsTest : public TorchTest {
 protected:
  ScratchDirectory directory_;
  const std::filesystem::path path_ = directory_.path() / "weights.safetensors";
};

TEST_F(WeightsTest, AreLoadedIntoAModuleByName) {
  const nn::Sequential saved(nn::Linear(2, 3), nn::BatchNorm1d(3));
  nn::Sequential loaded(nn::Linear(2, 3), nn::BatchNorm1d(3));
  save_safetensors(path_, *saved);
  EXPECT_EQ(kolo::load_safetensors(path_).metadata, (Metadata{{"format", "pt"}}));
  const UnmatchedNames unmatched = load_safetensors(path_, *loaded);
  expect_same_bits(saved->parameters(), loaded->parameters());
  expect_same_bits(saved->buffers(), loaded->buffers());
  EXPECT_TRUE(unmatched.missing.empty() && unmatched.unexpected.empty());
}

TEST_F(WeightsTest, OfEveryDTypeAreConverted) {
  for (const auto dtype : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
                           at::kBFloat16, at::kFloat, at::kDouble, at::kBool}) {
    const ::torch::Tensor tensor = ::torch::tensor({0, 1, 1, 0, 1, 0}).to(dtype).reshape({2, 3});
    save_safetensors(path_, {{"t", tensor.t()}});  // not in row-major order
    const StateDict file = kolo::load_safetensors(path_);
    EXPECT_TRUE(::torch::equal(to_tensor(file.tensors.at("t")), tensor.t())) << dtype;
    ::torch::Tensor doubles = ::torch::zeros({2, 3}, f64).t();
    load_safetensors(path_, {{"t", doubles}});
    EXPECT_TRUE(::torch::equal(doubles, tensor.t().to(f64))) << dtype;
  }
  EXPECT_THROW((void)to_tensor({.dtype = DType::u32, .shape = {1}, .bytes = "1234"}),
               InvalidArgument);
}

TEST_F(WeightsTest, ThatDoNotMatchAreRefusedAndChangeNothing) {
  const nn::Sequential saved(nn::Linear(2, 3), nn::Linear(3, 3));
  save_safetensors(path_, *saved);
  nn::Sequential other(nn::Linear(2, 3), nn::Linear(3, 4), nn::Linear(1, 1));
  const StateDict before = state(*other);
  const auto names = error_of<InvalidArgument>([&] { load_safetensors(path_, *other); });
  EXPECT_THAT(names.what(), HasSubstr("weights.safetensors': the names of tensors differ. Missing "
                                      "in the file: '2.bias', '2.weight'"));
  const auto shapes =
      error_of<InvalidArgument>([&] { load_safetensors(path_, *other, {.strict = false}); });
  EXPECT_THAT(shapes.what(),
              HasSubstr("'1.bias' has shape [3] in the file but [4] in the program"));
  EXPECT_EQ(state(*other), before);

  nn::Linear part(2, 3);
  const UnmatchedNames unmatched = load_safetensors(
      path_, {{"weight", part->weight}, {"scale", part->bias}}, {.strict = false, .prefix = "0."});
  EXPECT_THAT(unmatched.missing, testing::ElementsAre("scale"));
  EXPECT_THAT(unmatched.unexpected, testing::ElementsAre("bias"));
  EXPECT_TRUE(::torch::equal(part->weight, saved->parameters()[0]));
  EXPECT_THROW(load_safetensors("/nowhere/a.safetensors", *other), CheckpointError);
}

}  // namespace
}  // namespace kolo::internal::testing_support
