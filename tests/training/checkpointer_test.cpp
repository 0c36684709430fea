// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/checkpointer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "../session/fixture.hpp"
#include "scratch_directory.hpp"
#include "training/checkpoint_file.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename Action>
CheckpointError checkpoint_error_of(const Action& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error;
  }
  ADD_FAILURE() << "no CheckpointError";
  return {CheckpointFault::io, {}, ""};
}

// Rank 0's directory; the other ranks have none.
class Checkpoints : public WithSession {
 protected:
  Checkpoints() {
    if (me_ == 0) directory_.emplace();
  }

  [[nodiscard]] fs::path directory() const {
    return me_ == 0 ? directory_->path() / "run" : fs::path("/known/to/rank/0/only");
  }

  [[nodiscard]] CheckpointerOptions keeping(int last, Goal best = Goal::minimum) const {
    return {.directory = directory(), .keep_last = last, .best = best};
  }

  [[nodiscard]] Blobs parts(std::int64_t step) const {
    if (me_ != 0) return {};
    return {{"model", "model of step " + std::to_string(step)}, {"zeros", std::string(5000, '\0')}};
  }

  // The steps of the existing checkpoints, on all ranks.
  [[nodiscard]] std::vector<std::int64_t> steps() const {
    std::string found;
    if (me_ == 0) {
      for (const auto& entry : fs::directory_iterator(directory())) {
        found += entry.path().filename().string() + '\n';
      }
    }
    broadcast(found, 0);
    std::set<std::int64_t> steps;
    std::istringstream lines(found);
    for (std::string line; std::getline(lines, line);) {
      const std::string start = "checkpoint-", end = ".kolo";
      if (line.starts_with(start) && line.ends_with(end)) {
        steps.insert(std::stoll(line.substr(start.size())));
      } else {
        ADD_FAILURE() << "what is '" << line << "'?";
      }
    }
    return {steps.begin(), steps.end()};
  }

  void damage(const fs::path& path, std::int64_t keep_bytes) const {
    if (me_ == 0) fs::resize_file(path, static_cast<std::uintmax_t>(keep_bytes));
  }

  std::optional<testing_support::ScratchDirectory> directory_;
};

TEST_F(Checkpoints, AreThereOnEveryRank) {
  Checkpointer checkpoints(keeping(2));
  const Blobs own{{"random", "state of rank " + std::to_string(me_)}};
  checkpoints.save(7, parts(7), {.metric = 0.25, .own = own});

  const std::optional<Checkpoint> found = checkpoints.load_latest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 7);
  EXPECT_EQ(found->metric, 0.25);
  EXPECT_EQ(found->ranks, n_);
  EXPECT_EQ(found->part("model"), "model of step 7");
  EXPECT_EQ(found->part("zeros"), std::string(5000, '\0'));
  EXPECT_EQ(found->own, own);

  const CheckpointError error = checkpoint_error_of([&] { (void)found->part("optimizer"); });
  EXPECT_EQ(error.fault(), CheckpointFault::incomplete);
  EXPECT_THAT(error.what(), HasSubstr("checkpoint-0000000007.kolo' has no part 'optimizer'"));
}

TEST_F(Checkpoints, OfNoneIsNothing) {
  Checkpointer checkpoints(keeping(2));
  EXPECT_FALSE(checkpoints.load_latest().has_value());
  EXPECT_FALSE(checkpoints.load_best().has_value());
  EXPECT_FALSE(checkpoints.latest().has_value());
  if (me_ == 0) {
    EXPECT_FALSE(fs::exists(directory()));
  }
}

TEST_F(Checkpoints, KeepTheLastAndTheBest) {
  Checkpointer checkpoints(keeping(2, Goal::maximum));
  const std::vector<double> accuracy = {0.1, 0.7, 0.3, 0.7, 0.2, 0.6};
  for (std::size_t i = 0; i < accuracy.size(); ++i) {
    checkpoints.save(static_cast<std::int64_t>(10 * i), parts(1), {.metric = accuracy[i]});
  }
  EXPECT_THAT(steps(), ElementsAre(10, 40, 50));
  EXPECT_EQ(checkpoints.load_latest()->step, 50);
  EXPECT_EQ(checkpoints.load_best()->step, 10);

  // A new object finds the earlier best; a NaN is never the best.
  Checkpointer again(keeping(1, Goal::maximum));
  again.save(60, parts(1), {.metric = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_THAT(steps(), ElementsAre(10, 60));
  again.save(70, parts(1), {.metric = 0.8});
  EXPECT_THAT(steps(), ElementsAre(70));
}

TEST_F(Checkpoints, OfEqualMetricsTheOldestIsTheBestWhateverItsStep) {
  Checkpointer checkpoints(keeping(3));
  for (const std::int64_t step : {200, 100, 300})
    checkpoints.save(step, parts(step), {.metric = 1.5});
  EXPECT_EQ(checkpoints.load_best()->step, 200);
}

TEST_F(Checkpoints, WithoutMetricsKeepTheLast) {
  Checkpointer checkpoints(keeping(3));
  for (std::int64_t step = 1; step <= 5; ++step) checkpoints.save(step, parts(step));
  EXPECT_THAT(steps(), ElementsAre(3, 4, 5));
  EXPECT_FALSE(checkpoints.load_best().has_value());
  EXPECT_FALSE(checkpoints.load_latest()->metric.has_value());
}

TEST_F(Checkpoints, AfterAReturnToAnOlderOneTheNewBranchIsTheLatest) {
  Checkpointer checkpoints(keeping(2));
  checkpoints.save(100, parts(100), {.metric = 1.0});
  checkpoints.save(400, parts(400), {.metric = 9.0});
  checkpoints.save(500, parts(500), {.metric = 99.0});
  EXPECT_EQ(checkpoints.load_best()->step, 100);

  checkpoints.save(110, parts(110), {.metric = 1.5});
  EXPECT_THAT(steps(), ElementsAre(100, 110, 500));
  EXPECT_EQ(checkpoints.load_latest()->step, 110);
  // A process that resumes the run has only the files.
  Checkpointer resumed(keeping(2));
  EXPECT_EQ(resumed.load_latest()->step, 110);
  for (const std::int64_t step : {120, 130}) resumed.save(step, parts(step), {.metric = 1.5});
  EXPECT_THAT(steps(), ElementsAre(100, 120, 130));
  EXPECT_EQ(resumed.load_latest()->step, 130);
  EXPECT_EQ(resumed.latest()->filename(), "checkpoint-0000000130.kolo");

  // The same step again, after a return to step 100 by its path.
  resumed.save(120, parts(0), {.metric = 1.5});
  EXPECT_THAT(steps(), ElementsAre(100, 120, 130));
  EXPECT_EQ(resumed.load_latest()->part("model"), "model of step 0");
}

TEST_F(Checkpoints, WithoutSerialNumbersAreOrderedByStepAndOlderThanAllOthers) {
  Checkpointer checkpoints(keeping(3));
  for (const std::int64_t step : {30, 40, 20}) checkpoints.save(step, parts(step));
  for (const char* name : {"checkpoint-0000000020.kolo", "checkpoint-0000000040.kolo"}) {
    if (me_ != 0) continue;
    const fs::path path = directory() / name;
    const internal::CheckpointContents contents = internal::read_checkpoint(path);
    internal::write_checkpoint(path, contents.header.step, {}, contents.payload);
  }
  EXPECT_EQ(checkpoints.load_latest()->step, 30);
  Checkpointer careful(keeping(2));
  careful.save(10, parts(10));
  EXPECT_THAT(steps(), ElementsAre(10, 30));
  EXPECT_EQ(careful.load_latest()->step, 10);
}

TEST_F(Checkpoints, SavedWhileARankHasJoinedHaveNothingOfItsOwn) {
  Checkpointer checkpoints(keeping(2));
  const Blobs own{{"random", "state of rank " + std::to_string(me_)}};
  const bool joins_early = n_ > 1 && me_ == last_;
  if (!joins_early) checkpoints.save(7, parts(7), {.own = own});
  (void)join();
  const std::optional<Checkpoint> found = checkpoints.load_latest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->part("model"), "model of step 7");
  EXPECT_EQ(found->own, joins_early ? Blobs{} : own);
}

TEST_F(Checkpoints, OfTheSameStepIsReplaced) {
  Checkpointer checkpoints(keeping(2));
  checkpoints.save(1, parts(1));
  const fs::path path = checkpoints.save(1, parts(8));
  EXPECT_THAT(steps(), ElementsAre(1));
  EXPECT_EQ(checkpoints.load_latest()->part("model"), "model of step 8");
  const std::optional<fs::path> latest = checkpoints.latest();
  if (me_ == 0) {
    EXPECT_EQ(latest, path);
  }
}

TEST_F(Checkpoints, DamagedOnesArePassedOver) {
  Checkpointer checkpoints(keeping(4));
  for (const std::int64_t step : {1, 2, 3}) {
    const fs::path path = checkpoints.save(step, parts(step));
    if (step == 2) damage(path, 3000);
    if (step == 3 && me_ == 0)
      std::fstream(path, std::ios::in | std::ios::out).seekp(-1, std::ios::end) << 'x';
  }
  EXPECT_EQ(checkpoints.load_latest()->step, 1);
  EXPECT_EQ(checkpoints.latest()->filename(), "checkpoint-0000000001.kolo");
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
  // A damaged file does not count as one of the last: the complete one before it is kept.
  Checkpointer careful(keeping(1));
  careful.save(4, parts(4));
  EXPECT_THAT(steps(), ElementsAre(2, 4));
}

TEST_F(Checkpoints, TruncatedAndCorruptAreToldApartOnEveryRank) {
  Checkpointer checkpoints(keeping(4));
  const fs::path path = checkpoints.save(1, parts(1));
  if (me_ == 0) std::ofstream(path, std::ios::app) << "more";
  CheckpointError error = checkpoint_error_of([&] { (void)Checkpointer::load(path); });
  EXPECT_EQ(error.fault(), CheckpointFault::corrupt);
  damage(path, 2000);
  error = checkpoint_error_of([&] { (void)Checkpointer::load(path); });
  EXPECT_EQ(error.fault(), CheckpointFault::truncated);
  EXPECT_THAT(error.what(), HasSubstr("run/checkpoint-0000000001.kolo' is truncated"));
  if (me_ == 0) {
    EXPECT_EQ(error.path(), path);
  }
  error = checkpoint_error_of([&] { (void)Checkpointer::load("/nowhere"); });
  EXPECT_EQ(error.fault(), CheckpointFault::missing);
  expect_usable();
}

TEST_F(Checkpoints, WhatAnInterruptedWriteLeftIsRemoved) {
  Checkpointer checkpoints(keeping(2));
  const fs::path path = checkpoints.save(1, parts(1));
  if (me_ == 0) std::ofstream(internal::unfinished_name(path)) << "half";
  EXPECT_EQ(checkpoints.load_latest()->step, 1);
  checkpoints.save(2, parts(2));
  EXPECT_THAT(steps(), ElementsAre(1, 2));
}

TEST_F(Checkpoints, OtherFilesInTheDirectoryStay) {
  Checkpointer checkpoints(keeping(1));
  checkpoints.save(1, parts(1));
  const fs::path other = directory() / "checkpoint-notes.kolo.part";
  if (me_ == 0) std::ofstream(other) << "mine";
  checkpoints.save(2, parts(2));
  if (me_ == 0) {
    EXPECT_TRUE(fs::exists(other));
    fs::remove(other);
  }
  EXPECT_THAT(steps(), ElementsAre(2));
}

TEST_F(Checkpoints, ADirectoryThatCannotBeMadeIsAnErrorOnEveryRank) {
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

TEST_F(Checkpoints, AFullDiskIsAnErrorOnEveryRankAndTheOldOnesStay) {
  Checkpointer checkpoints(keeping(1));
  checkpoints.save(1, parts(1));
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
  EXPECT_THAT(steps(), ElementsAre(1));
  EXPECT_EQ(checkpoints.load_latest()->step, 1);
}

TEST_F(Checkpoints, OfAnotherNumberOfRanksHaveNothingOfThisRanksOwn) {
  Checkpointer checkpoints(keeping(1));
  const fs::path path = checkpoints.save(3, parts(3), {.own = {{"random", "x"}}});
  std::string where = path.string();
  broadcast(where, 0);
  if (me_ == 0) {
    // As if n + 1 ranks had written it: the payload begins with their number.
    internal::CheckpointContents contents = internal::read_checkpoint(path);
    contents.payload[0] = static_cast<char>(n_ + 1);
    contents.payload += std::string(4, '\0');
    internal::write_checkpoint(path, 3, {}, contents.payload);
  }
  const Checkpoint loaded = Checkpointer::load(where);
  EXPECT_EQ(loaded.ranks, n_ + 1);
  EXPECT_TRUE(loaded.own.empty());
  EXPECT_EQ(loaded.part("model"), "model of step 3");
}

TEST_F(Checkpoints, RefuseOptionsThatMakeNoSense) {
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
