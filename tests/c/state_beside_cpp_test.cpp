// SPDX-License-Identifier: Apache-2.0
// Checkpoints, safetensors files and statistics of the C interface beside those of C++: either
// reads what the other has written.
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "../session/fixture.hpp"
#include "../training/scratch_directory.hpp"
#include "kolo/c/kolo.h"

namespace kolo::internal {
namespace {

class StateBesideCpp : public WithSession {
 protected:
  StateBesideCpp() {
    std::iota(weight_.begin(), weight_.end(), 0.5F);
    directory_ = scratch_.path().string();
    // All ranks use rank 0's directory.
    std::array<char, 256> name{};
    directory_.copy(name.data(), name.size() - 1);
    broadcast(name, 0);
    directory_ = name.data();
  }
  ~StateBesideCpp() override { barrier(); }

  [[nodiscard]] kolo_named_tensor tensor(std::vector<float>& values) const {
    return {"weight", {values.data(), KOLO_F32, {KOLO_CPU, 0}, 1, &count_}};
  }
  static kolo_part part(const kolo_named_tensor& tensor, const kolo_text& text) {
    return {"model", &tensor, 1, &text, 1};
  }

  const std::int64_t count_ = 30000;
  std::vector<float> weight_ = std::vector<float>(static_cast<std::size_t>(count_));
  testing_support::ScratchDirectory scratch_;
  std::string directory_;
};

TEST_F(StateBesideCpp, CppLoadsACheckpointOfC) {
  const kolo_named_tensor weight = tensor(weight_);
  const kolo_text note{"note", "from C"};
  const kolo_part model = part(weight, note);
  kolo_checkpointer_options options = KOLO_CHECKPOINTER_OPTIONS;
  options.directory = directory_.c_str();
  kolo_save_options extras = KOLO_SAVE_OPTIONS;
  extras.has_metric = 1;
  extras.metric = 0.25;
  kolo_checkpointer* checkpointer = nullptr;
  ASSERT_EQ(kolo_checkpointer_create(&options, &checkpointer), KOLO_OK);
  ASSERT_EQ(kolo_checkpointer_save(checkpointer, 7, &model, 1, &extras), KOLO_OK)
      << kolo_last_error_message();
  ASSERT_EQ(kolo_checkpointer_free(checkpointer), KOLO_OK);

  const auto found = Checkpointer({.directory = directory_}).load_latest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 7);
  EXPECT_EQ(found->metric, 0.25);
  EXPECT_EQ(found->part("model").metadata.at("note"), "from C");
  std::vector<float> loaded(weight_.size());
  load_state({{"weight", loaded}}, found->part("model"));
  EXPECT_EQ(loaded, weight_);
}

TEST_F(StateBesideCpp, CLoadsACheckpointOfCpp) {
  Checkpointer({.directory = directory_})
      .save(7, {{"model", StateView({{"weight", weight_}}, {{"note", "from C++"}})},
                {"sampler", StateView(std::string("epoch 3"))}});
  kolo_checkpoint* checkpoint = nullptr;
  kolo_state* state = nullptr;
  const std::string path = directory_ + "/checkpoint-0000000007";
  ASSERT_EQ(kolo_checkpoint_load(path.c_str(), &checkpoint), KOLO_OK) << kolo_last_error_message();
  ASSERT_EQ(kolo_checkpoint_part(checkpoint, KOLO_SHARED_PART, "model", &state), KOLO_OK);
  std::vector<float> loaded(weight_.size());
  const kolo_named_tensor into = tensor(loaded);
  ASSERT_EQ(kolo_state_load(state, &into, 1, nullptr, nullptr), KOLO_OK)
      << kolo_last_error_message();
  EXPECT_EQ(loaded, weight_);
  std::array<char, 20> text{};
  ASSERT_EQ(kolo_state_text(state, "note", text.data(), text.size(), nullptr), KOLO_OK);
  EXPECT_STREQ(text.data(), "from C++");
  EXPECT_EQ(kolo_state_free(state), KOLO_OK);
  // A text of C++ is one tensor of bytes without a name.
  ASSERT_EQ(kolo_checkpoint_part(checkpoint, KOLO_SHARED_PART, "sampler", &state), KOLO_OK);
  EXPECT_EQ(kolo_checkpoint_free(checkpoint), KOLO_OK);  // the part outlives it
  kolo_dtype dtype = KOLO_F64;
  std::int32_t dimensions = 0;
  std::int64_t length = 0;
  ASSERT_EQ(kolo_state_tensor_shape(state, 0, &dtype, &dimensions, &length, 1), KOLO_OK);
  EXPECT_EQ(dtype, KOLO_U8);
  EXPECT_EQ(dimensions, 1);
  std::string epoch(static_cast<std::size_t>(length), ' ');
  const kolo_named_tensor bytes = {"", {epoch.data(), KOLO_U8, {KOLO_CPU, 0}, 1, &length}};
  ASSERT_EQ(kolo_state_load(state, &bytes, 1, nullptr, nullptr), KOLO_OK);
  EXPECT_EQ(epoch, "epoch 3");
  EXPECT_EQ(kolo_state_free(state), KOLO_OK);
}

TEST_F(StateBesideCpp, OneFaultHasOneText) {
  const auto error = [&]() -> std::optional<CheckpointError> {
    try {
      static_cast<void>(load_safetensors("/no/such/file"));
    } catch (const CheckpointError& thrown) {
      return thrown;
    }
    return std::nullopt;
  }();
  ASSERT_TRUE(error);
  kolo_state* state = nullptr;
  EXPECT_EQ(kolo_load_safetensors("/no/such/file", &state), KOLO_CHECKPOINT_ERROR);
  EXPECT_STREQ(kolo_last_error_message(), error->what());
  EXPECT_EQ(kolo_last_checkpoint_fault(), KOLO_FAULT_MISSING);
  EXPECT_EQ(KOLO_FAULT_IO - KOLO_FAULT_MISSING,
            static_cast<int>(CheckpointFault::io) - static_cast<int>(CheckpointFault::missing));
}

// Counters may still grow, so those of C are between two readings of C++.
TEST_F(StateBesideCpp, StatisticsAreTheSame) {
  for (int i = 0; i < 5; ++i) broadcast(weight_, 0);
  barrier();
  const Statistics before = statistics();
  kolo_statistics in_c;
  ASSERT_EQ(kolo_read_statistics(&in_c, sizeof in_c), KOLO_OK);
  const Statistics after = statistics();
  const auto expect_between = [](std::uint64_t low, std::uint64_t value, std::uint64_t high) {
    EXPECT_LE(low, value);
    EXPECT_LE(value, high);
  };
  expect_between(before.submitted, in_c.submitted, after.submitted);
  expect_between(before.finished, in_c.finished, after.finished);
  expect_between(before.batches, in_c.batches, after.batches);
  expect_between(before.negotiation.sum, in_c.negotiation.sum, after.negotiation.sum);
  EXPECT_GT(in_c.submitted, 0U);
  expect_between(before.batch_bytes.max, in_c.batch_bytes.max, after.batch_bytes.max);
  std::uint64_t bytes = 0;
  ASSERT_EQ(kolo_read_kind_statistics("broadcast", nullptr, &bytes), KOLO_OK);
  EXPECT_GE(bytes, 5 * weight_.size() * sizeof(float));

  const Histogram in_cpp{7, 35, 9, {1, 2, 4}};
  const kolo_histogram histogram{7, 35, 9, {1, 2, 4}};
  EXPECT_EQ(kolo_histogram_mean(&histogram), in_cpp.mean());
  EXPECT_EQ(kolo_histogram_quantile(&histogram, 0.5), in_cpp.quantile(0.5));
}

}  // namespace
}  // namespace kolo::internal
