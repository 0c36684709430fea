// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>

#include "scratch_directory.hpp"
#include "training/checkpoint/checkpoint_files.hpp"
#include "training/checkpoint/checkpoint_save.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using Others = BackgroundSave::Others;
using testing::HasSubstr;

/// Rank 0's part of a save of two files, which cannot be written before `open`.
class BackgroundSaveTest : public testing::Test {
 protected:
  BackgroundSaveTest() {
    fs::create_directory(job_.folder);
    job_.state.tensors.emplace("model.x", TensorSource(DType::u8, Shape{1},
                                                       [opened = opened_.get_future().share()](
                                                           auto, auto) { opened.wait(); }));
    job_.publish = [this] { published_ = true; };
  }
  void open() { opened_.set_value(); }
  void write_other() { write_checkpoint_file(checkpoint_file(job_.folder, 1, 2), job_.header, {}); }

  testing_support::ScratchDirectory directory_;
  std::promise<void> opened_{};
  bool published_ = false;
  SaveJob job_{.folder = directory_.path() / "checkpoint", .header = {.files = 2}, .file = 0};
};

TEST_F(BackgroundSaveTest, WritesItsFileAndPublishesOnceAllAreThere) {
  BackgroundSave save(std::move(job_));
  EXPECT_TRUE(save.is_writing());
  open();
  EXPECT_FALSE(save.wait_for_file().has_value());
  EXPECT_FALSE(save.is_writing());
  EXPECT_TRUE(fs::exists(checkpoint_file(save.job().folder, 0, 2)));
  EXPECT_FALSE(published_);
  write_checkpoint_file(checkpoint_file(save.job().folder, 1, 2), save.job().header, {});
  EXPECT_FALSE(save.finish(Others::have_written).has_value());
  EXPECT_TRUE(published_);
}

TEST_F(BackgroundSaveTest, GivesUpWithoutTheOthers) {
  const fs::path folder = job_.folder;
  BackgroundSave save(std::move(job_));
  open();
  const std::optional<CheckpointError> error = save.finish(Others::are_gone);
  ASSERT_TRUE(error.has_value());
  EXPECT_THAT(error->what(), HasSubstr("its file 'model-00002-of-00002.safetensors' has not come"));
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_FALSE(published_);
}

TEST_F(BackgroundSaveTest, ItsEndWaitsForTheFiles) {
  auto save = std::make_unique<BackgroundSave>(job_);
  std::future<void> ended = std::async(std::launch::async, [&] { save.reset(); });
  open();
  write_other();
  ended.get();
  EXPECT_TRUE(published_);
}

TEST_F(BackgroundSaveTest, OnAnotherRankOnlyWrites) {
  job_.publish = {};
  BackgroundSave save(std::move(job_));
  open();
  EXPECT_FALSE(save.finish(Others::have_written).has_value());
  EXPECT_TRUE(fs::exists(checkpoint_file(save.job().folder, 0, 2)));
}

TEST_F(BackgroundSaveTest, ReportsWhatFails) {
  job_.folder = directory_.path() / "absent";
  BackgroundSave save(std::move(job_));
  open();
  const std::optional<CheckpointError> error = save.wait_for_file();
  ASSERT_TRUE(error.has_value());
  EXPECT_THAT(error->what(), HasSubstr("No such file"));
  EXPECT_TRUE(save.finish(Others::are_gone).has_value());
  EXPECT_FALSE(save.finish(Others::are_gone).has_value()) << "it is reported once";
}

}  // namespace
}  // namespace kolo::internal
