// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/checkpoint.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "checkpoints.hpp"
#include "training/checkpoint/part_names.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::checkpoint_error_of;
using testing_support::Checkpoints;
using testing_support::copies_of;

TEST_F(Checkpoints, AreThereOnEveryRank) {
  Checkpointer checkpoints(keeping(2));
  const NamedStates per_rank{{"random", "state of rank " + std::to_string(me_)}};
  checkpoints.save(7, parts(7), {.metric = 0.25, .per_rank = {per_rank.begin(), per_rank.end()}});

  const std::optional<Checkpoint> found = checkpoints.load_latest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 7);
  EXPECT_EQ(found->metric, 0.25);
  EXPECT_EQ(found->ranks, n_);
  EXPECT_EQ(found->part("model").text(), "model of step 7");
  EXPECT_EQ(found->part("zeros").text(), std::string(5000, '\0'));
  EXPECT_EQ(copies_of(found->per_rank), per_rank);

  const CheckpointError error = checkpoint_error_of([&] { (void)found->part("optimizer"); });
  EXPECT_EQ(error.fault(), CheckpointFault::incomplete);
  EXPECT_THAT(error.what(), HasSubstr("checkpoint-0000000007' has no part 'optimizer'"));
}

TEST_F(Checkpoints, WithPartsThatOneRankCannotSaveAreRefusedOnEveryRank) {
  Checkpointer checkpoints(keeping(2));
  NamedStates per_rank{{"random", "state"}};
  if (me_ == n_ - 1) per_rank["random"] = StateDict(ConstTensorViews{}, {{"key", "\xFF"}});
  try {
    checkpoints.save(7, parts(7), {.per_rank = {per_rank.begin(), per_rank.end()}});
    ADD_FAILURE() << "no exception";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("the parts cannot be saved"));
    EXPECT_THAT(error.what(), HasSubstr("(on rank " + std::to_string(n_ - 1) + ")"));
    EXPECT_THAT(error.ranks(), ElementsAre(n_ - 1));
  }
  EXPECT_FALSE(checkpoints.load_latest().has_value());
  checkpoints.save(8, parts(8));
  EXPECT_EQ(checkpoints.load_latest()->step, 8);
}

TEST_F(Checkpoints, OfDifferentStepsAreRefusedOnEveryRank) {
  if (n_ == 1) return;
  Checkpointer checkpoints(keeping(2));
  try {
    checkpoints.save(me_ == last_ ? 8 : 7, parts(7));
    ADD_FAILURE() << "no exception";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("the step is 7 on rank 0 and 8 on rank " + std::to_string(last_)));
    EXPECT_THAT(error.ranks(), ElementsAre(last_));
  }
  EXPECT_FALSE(checkpoints.load_latest().has_value());
}

// The directory is that of rank 0.
TEST_F(Checkpoints, HaveTheSamePathOnEveryRank) {
  Checkpointer checkpoints(keeping(2));
  std::string path = checkpoints.save(7, parts(7)).string();
  const std::string own = path;
  broadcast(path, 0);
  EXPECT_EQ(own, path);
  EXPECT_EQ(checkpoints.save_async(7, parts(7))->string(), path);
  EXPECT_EQ(checkpoints.latest()->string(), path);
}

TEST_F(Checkpoints, OfPrefixesThatBeginAlikeAreKeptApart) {
  Checkpointer first({.directory = directory(), .prefix = "a", .keep_last = 1, .keep_best = false});
  Checkpointer second({.directory = directory(), .prefix = "a-", .keep_last = 1});
  second.save(0, parts(100));
  for (const std::int64_t step : {0, 1}) first.save(step, parts(step));
  EXPECT_EQ(first.load_latest()->step, 1);
  EXPECT_EQ(second.load_latest()->part("model").text(), "model of step 100");
}

TEST_F(Checkpoints, StayInTheDirectoryOfTheStart) {
  const fs::path before = fs::current_path();
  CheckpointerOptions options = keeping(2);
  if (me_ == 0) fs::current_path(options.directory.parent_path());
  if (me_ == 0) options.directory = options.directory.filename();
  Checkpointer checkpoints(options);
  fs::current_path("/");
  checkpoints.save(7, parts(7));
  EXPECT_THAT(steps(), ElementsAre(7));
  EXPECT_EQ(checkpoints.load_latest()->step, 7);
  fs::current_path(before);
}

TEST_F(Checkpoints, DoNotHaveTensorsOfAReservedName) {
  Checkpointer checkpoints(keeping(2));
  checkpoints.save(7, parts(7));
  const float one = 1;
  EXPECT_THROW(checkpoints.save(8, {{"model", StateDict({{"__metadata__", one}})}}), Error);
  EXPECT_EQ(checkpoints.load_latest()->step, 7);
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
  EXPECT_EQ(resumed.latest()->filename(), "checkpoint-0000000130");

  // The same step again, after a return to step 100 by its path.
  resumed.save(120, parts(0), {.metric = 1.5});
  EXPECT_THAT(steps(), ElementsAre(100, 120, 130));
  EXPECT_EQ(resumed.load_latest()->part("model").text(), "model of step 0");
}

TEST_F(Checkpoints, ComeBackTensorByTensorOnEveryRank) {
  Checkpointer checkpoints(keeping(2));
  std::vector<float> weight(1000);
  std::iota(weight.begin(), weight.end(), 0.0F);
  const std::int32_t mine = 100 + me_;
  const fs::path path =
      checkpoints.save(1, {{"model", me_ == 0 ? StateDict({{"weight", weight}}) : StateDict()}},
                       {.per_rank = {{"count", StateDict({{"value", mine}})}}});
  if (me_ == 0) {
    const StateDict file = load_safetensors(path / "model.safetensors.index.json");
    EXPECT_EQ(file.tensors.at("model.weight").shape, Shape{1000});
    EXPECT_EQ(file.tensors.size(), static_cast<std::size_t>(n_) + 1);
  }
  const std::optional<Checkpoint> found = checkpoints.load_latest();
  ASSERT_TRUE(found.has_value());
  std::vector<float> loaded(1000);
  std::int32_t count = 0;
  load_state({{"weight", loaded}}, found->part("model"));
  load_state({{"value", count}}, found->per_rank_part("count"));
  EXPECT_EQ(loaded, weight);
  EXPECT_EQ(count, mine);
}

TEST_F(Checkpoints, SavedWhileARankHasJoinedHaveNothingOfItsOwn) {
  Checkpointer checkpoints(keeping(2));
  const NamedStates per_rank{{"random", "state of rank " + std::to_string(me_)}};
  const bool joins_early = n_ > 1 && me_ == last_;
  if (!joins_early) checkpoints.save(7, parts(7), {.per_rank = {per_rank.begin(), per_rank.end()}});
  (void)join();
  const std::optional<Checkpoint> found = checkpoints.load_latest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->part("model").text(), "model of step 7");
  EXPECT_EQ(copies_of(found->per_rank), joins_early ? NamedStates{} : per_rank);
}

TEST_F(Checkpoints, OfTheSameStepIsReplaced) {
  Checkpointer checkpoints(keeping(2));
  checkpoints.save(1, parts(1));
  const fs::path path = checkpoints.save(1, parts(8));
  EXPECT_THAT(steps(), ElementsAre(1));
  EXPECT_EQ(checkpoints.load_latest()->part("model").text(), "model of step 8");
  const std::optional<fs::path> latest = checkpoints.latest();
  if (me_ == 0) {
    EXPECT_EQ(latest, path);
  }
}

TEST_F(Checkpoints, OfAnotherNumberOfRanksHaveNothingOfThisRanksOwn) {
  std::string where;
  if (me_ == 0) {
    where = (directory_->path() / "other.safetensors").string();
    write_checkpoint_file(where, {.step = 3, .ranks = n_ + 1}, flatten(parts(3)));
  }
  broadcast(where, 0);
  const Checkpoint loaded = Checkpointer::load(where);
  EXPECT_EQ(loaded.ranks, n_ + 1);
  EXPECT_TRUE(loaded.per_rank.empty());
  EXPECT_EQ(loaded.part("model").text(), "model of step 3");
}

// The elements are those of the rank that has written them.
TEST_F(Checkpoints, HaveTheLargeTensorsInTheFilesOfAllRanks) {
  Checkpointer checkpoints(keeping(2));
  std::map<std::string, std::vector<std::int64_t>> tensors;
  ConstTensorViews views;
  for (int i = 0; i < n_; ++i) {
    auto& tensor = tensors["tensor " + std::to_string(i)];
    tensor.assign(std::size_t{1} << 14U, me_);
    views.emplace("tensor " + std::to_string(i), tensor);
  }
  const std::int64_t small = me_;
  views.emplace("small", small);
  checkpoints.save(1, {{"model", StateView(views)}});
  const StateDict model = checkpoints.load_latest()->part("model").copy();
  std::set<std::int64_t> writers;
  for (const auto& [name, tensor] : model.tensors) {
    std::int64_t writer = -1;
    std::memcpy(&writer, tensor.bytes.data(), sizeof writer);
    if (name != "small") {
      EXPECT_TRUE(writers.insert(writer).second) << name;
    } else {
      EXPECT_EQ(writer, 0);
    }
  }
  EXPECT_EQ(writers.size(), static_cast<std::size_t>(n_));
}

}  // namespace
}  // namespace kolo::internal
