// SPDX-License-Identifier: Apache-2.0
// Checkpoints that cannot be written or read.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "checkpoints.hpp"
#include "training/safetensors/disk_file.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::checkpoint_error_of;
using CheckpointFaults = testing_support::Checkpoints;

TEST_F(CheckpointFaults, DamagedOnesArePassedOver) {
  Checkpointer checkpoints(keeping(4));
  for (const std::int64_t step : {1, 2, 3}) {
    const fs::path path = checkpoints.save(step, parts(step));
    if (step == 2) damage(path, 3000);
    if (step == 3 && me_ == 0)
      std::fstream(first_file(path), std::ios::in | std::ios::out).seekp(-1, std::ios::end) << 'x';
  }
  EXPECT_EQ(checkpoints.load_latest()->step, 1);
  EXPECT_EQ(checkpoints.latest()->filename(), "checkpoint-0000000001");
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
  // A damaged file does not count as one of the last: the complete one before it is kept.
  Checkpointer careful(keeping(1));
  careful.save(4, parts(4));
  EXPECT_THAT(steps(), ElementsAre(2, 4));
}

TEST_F(CheckpointFaults, TruncatedAndCorruptAreToldApartOnEveryRank) {
  Checkpointer checkpoints(keeping(4));
  const fs::path path = checkpoints.save(1, parts(1));
  if (me_ == 0) std::ofstream(first_file(path), std::ios::app) << "more";
  CheckpointError error = checkpoint_error_of([&] { (void)Checkpointer::load(path); });
  EXPECT_EQ(error.fault(), CheckpointFault::corrupt);
  damage(path, 2000);
  error = checkpoint_error_of([&] { (void)Checkpointer::load(path); });
  EXPECT_EQ(error.fault(), CheckpointFault::truncated);
  EXPECT_THAT(error.what(), HasSubstr("run/checkpoint-0000000001/model-00001-of-"));
  EXPECT_THAT(error.what(), HasSubstr("safetensors' is truncated"));
  if (me_ == 0) {
    EXPECT_EQ(error.path(), first_file(path));
  }
  error = checkpoint_error_of([&] { (void)Checkpointer::load("/nowhere"); });
  EXPECT_EQ(error.fault(), CheckpointFault::missing);
  expect_usable();
}

TEST_F(CheckpointFaults, WhatAnInterruptedWriteLeftIsRemoved) {
  Checkpointer checkpoints(keeping(2));
  const fs::path path = checkpoints.save(1, parts(1));
  if (me_ == 0) {
    const fs::path left = internal::unfinished_name(path);
    fs::create_directory(left);
    std::ofstream(left / "model-00001-of-00001.safetensors") << "half";
  }
  EXPECT_EQ(checkpoints.load_latest()->step, 1);
  checkpoints.save(2, parts(2));
  EXPECT_THAT(steps(), ElementsAre(1, 2));
}

TEST_F(CheckpointFaults, OtherFilesInTheDirectoryStay) {
  Checkpointer checkpoints(keeping(1));
  checkpoints.save(1, parts(1));
  const fs::path other = directory() / "checkpoint-notes.safetensors.part";
  if (me_ == 0) std::ofstream(other) << "mine";
  checkpoints.save(2, parts(2));
  if (me_ == 0) {
    EXPECT_TRUE(fs::exists(other));
    fs::remove(other);
  }
  EXPECT_THAT(steps(), ElementsAre(2));
}

TEST_F(CheckpointFaults, ADirectoryThatCannotBeMadeIsAnErrorOnEveryRank) {
  fs::path file;
  if (me_ == 0) {
    file = directory_->path() / "file";
    std::ofstream(file) << "no directory";
  }
  Checkpointer checkpoints({.directory = me_ == 0 ? file / "run" : directory()});
  const CheckpointError error = checkpoint_error_of([&] { checkpoints.save(1, parts(1)); });
  EXPECT_EQ(error.fault(), CheckpointFault::io);
  EXPECT_THAT(error.what(), HasSubstr("file/run"));
  expect_usable();
}

// The unfinished file of a killed process does not disturb the next checkpoint.
TEST_F(CheckpointFaults, AFullDiskIsAnErrorOnEveryRankAndTheOldOnesStay) {
  Checkpointer checkpoints(keeping(1));
  const fs::path left = internal::unfinished_name(checkpoints.save(1, parts(1)));
  if (me_ == 0) std::ofstream(left) << "half";
  ::rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  if (me_ == 0) {
    const ::rlimit small{.rlim_cur = 2000, .rlim_max = before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  const CheckpointError error = checkpoint_error_of([&] { checkpoints.save(2, parts(2)); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  static_cast<void>(std::signal(SIGXFSZ, handler));
  EXPECT_EQ(error.fault(), CheckpointFault::io);
  EXPECT_THAT(error.what(), HasSubstr("cannot write checkpoint"));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_THAT(steps(), ElementsAre(1));
  EXPECT_EQ(checkpoints.load_latest()->step, 1);
}

TEST_F(CheckpointFaults, RefuseOptionsThatMakeNoSense) {
  EXPECT_THROW(Checkpointer({.directory = ""}), InvalidArgument);
  EXPECT_THROW(Checkpointer({.directory = "a", .prefix = "b/c"}), InvalidArgument);
  EXPECT_THROW(Checkpointer({.directory = "a", .prefix = ""}), InvalidArgument);
  EXPECT_THROW(Checkpointer({.directory = "a", .keep_last = 0}), InvalidArgument);
  Checkpointer checkpoints(keeping(1));
  EXPECT_THROW(checkpoints.save(-1, {}), InvalidArgument);
  expect_usable();
}

}  // namespace
}  // namespace kolo::internal
