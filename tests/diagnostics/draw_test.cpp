// SPDX-License-Identifier: Apache-2.0
// The picture of a recorded run; the files come from what writes them in Kolo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "activity.hpp"
#include "diagnostics/recorder.hpp"
#include "diagnostics/timeline_file.hpp"
#include "picture.hpp"
#include "record.hpp"

namespace diagnose {
namespace {

namespace recording = kolo::internal::diagnostics;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr std::int64_t ms = 1'000'000;
constexpr int drawn_ranks = 3;
constexpr int steps = 6;
constexpr int late_rank = 1;

class Draw : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static recording::TimePoint at(std::int64_t ns) {
    return recording::TimePoint(std::chrono::nanoseconds(ns));
  }

  /// In each step of 50 ms each rank computes for 10 ms, the late one for 20 ms more, before each
  /// of two gradients, and all wait for both. `clock`: what this rank's clock is ahead.
  [[nodiscard]] RankRun timeline(int rank, std::int64_t clock = 0,
                                 const std::string& name = "a") const {
    const std::string path = directory_ + "/t-" + std::to_string(rank) + ".json";
    recording::TimelineFile file(path);
    recording::TraceEvents events(file, rank);
    const auto first = std::make_shared<const std::string>(name);
    const auto second = std::make_shared<const std::string>("b");
    for (int step = 0; step < steps; ++step)
      for (int gradient = 0; gradient < 2; ++gradient) {
        const std::int64_t begin = step * 50 * ms + clock;
        const std::int64_t late = rank == late_rank ? 20 * ms : 0;
        const std::int64_t agreed = begin + 30 * ms + gradient * 10 * ms;
        events.add({.begin = at(agreed - 20 * ms + late),
                    .agreed = at(agreed),
                    .end = at(agreed + 2 * ms),
                    .batch = static_cast<std::uint64_t>(2 * step + gradient),
                    .text = gradient == 0 ? first : second,
                    .track = recording::first_named_track + static_cast<unsigned>(gradient),
                    .kind = recording::Span::Kind::operation});
      }
    file.finish();
    return read_run(path);
  }

  [[nodiscard]] RankRun written(const std::string& text) const {
    const std::string path = directory_ + "/written.json";
    std::ofstream(path) << text;
    return read_run(path);
  }

  const std::string directory_ = testing::TempDir() + "draw" + std::to_string(::getpid());
};

TEST_F(Draw, NamesTheLateRank) {
  const Activity activity = find_activity({timeline(2), timeline(0), timeline(1)}, {});
  EXPECT_EQ(activity.step_name, "a");
  EXPECT_EQ(activity.all_steps, std::size_t{steps});
  ASSERT_THAT(activity.ranks, SizeIs(drawn_ranks));
  ASSERT_TRUE(activity.late_rank);
  EXPECT_EQ(activity.late_rank->rank, late_rank);
  EXPECT_EQ(activity.ranks[late_rank].lateness.front(), 20 * ms);
  EXPECT_EQ(late_in(activity, 0), std::size_t{late_rank});
}

// Each waits for both gradients: from its submission of the second until the second is done.
TEST_F(Draw, DividesAStepIntoComputingAndWaiting) {
  const Activity activity = find_activity({timeline(0), timeline(1), timeline(2)}, {2, 4});
  ASSERT_THAT(activity.steps, SizeIs(3));
  EXPECT_EQ(activity.first_step, 2U);
  EXPECT_EQ(length_of(activity.ranks[0].waiting), 3 * 22 * ms);
  EXPECT_EQ(length_of(activity.ranks[0].computing), 3 * (50 - 22) * ms);
  EXPECT_EQ(length_of(activity.ranks[late_rank].waiting), 3 * (2 + 2) * ms);
  EXPECT_EQ(length_of(activity.ranks[late_rank].reducing), 3 * 2 * 2 * ms);
}

// "a" is done while the program computes, for "b" is still pending.
TEST_F(Draw, TakesNoOverlapForWaiting) {
  const RankRun run{.operations = {{"a", 0, 0, false, 0, 5, 15},
                                   {"b", 0, 1, false, 10, 35, 40},
                                   {"c", 0, 2, false, 30, 45, 50}}};
  const Activity activity = find_activity({run}, {});
  EXPECT_EQ(length_of(activity.ranks.front().waiting), 50 - 30);
  EXPECT_EQ(length_of(activity.ranks.front().computing), 30);
}

TEST_F(Draw, AlignsTheClocksOfTheHosts) {
  const Activity one = find_activity({timeline(0), timeline(1), timeline(2)}, {});
  const Activity several =
      find_activity({timeline(0), timeline(1, 5'000'000 * ms), timeline(2, -3 * ms)}, {});
  for (std::size_t rank = 0; rank < drawn_ranks; ++rank) {
    EXPECT_EQ(length_of(several.ranks[rank].waiting), length_of(one.ranks[rank].waiting));
    EXPECT_EQ(several.ranks[rank].lateness, one.ranks[rank].lateness);
  }
}

// The hosts have run for a year.
TEST_F(Draw, FindsTheLateRankOfManyByAnyClock) {
  constexpr std::int64_t year = 365 * 24 * 3600 * std::int64_t{1000} * ms;
  constexpr int many = 400;
  std::vector<RankRun> runs;
  for (int rank = 0; rank < many; ++rank) {
    const std::int64_t late = rank == late_rank ? 20 * ms : 0;
    RankRun run{.rank = rank};
    for (int step = 0; step < 3; ++step) {
      const std::int64_t begin = year + step * 50 * ms;
      run.operations.push_back(
          {"a", 0, step, false, begin + 10 * ms + late, begin + 30 * ms, begin + 32 * ms});
    }
    runs.push_back(run);
  }
  const Activity activity = find_activity(std::move(runs), {});
  ASSERT_TRUE(activity.late_rank);
  EXPECT_EQ(activity.late_rank->rank, late_rank);
  EXPECT_EQ(activity.ranks[late_rank].lateness.front(), 20 * ms);
}

TEST_F(Draw, ShowsTheLastStepsUnlessOthersAreWanted) {
  const std::vector<RankRun> runs{timeline(0), timeline(1)};
  EXPECT_THAT(find_activity(runs, {}).steps, SizeIs(steps));
  EXPECT_THAT(find_activity(runs, {6, 6}).steps, SizeIs(1));
  EXPECT_THROW(static_cast<void>(find_activity(runs, {7, 7})), std::runtime_error);
  EXPECT_THROW(static_cast<void>(find_activity({}, {})), std::runtime_error);
}

TEST_F(Draw, IsAnSvgWithARowForEachRank) {
  const Activity activity =
      find_activity({timeline(0, 0, "<b>&\"\x01"), timeline(1, 0, "<b>&\"\x01")}, {});
  const std::string picture = draw(activity);
  EXPECT_THAT(picture, testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(picture, HasSubstr(">rank 0</text>"));
  EXPECT_THAT(picture, HasSubstr("font-weight=\"bold\">rank 1</text>"));
  EXPECT_THAT(picture, HasSubstr("rank 1 is late by 18.3 ms per step of 43.7 ms"));
  EXPECT_THAT(picture, HasSubstr("step 1: others wait for rank 1"));
  EXPECT_THAT(picture, HasSubstr("&lt;b&gt;&amp;&quot;?"));
  EXPECT_THAT(picture, Not(HasSubstr("<b>")));
}

TEST_F(Draw, ReadsFlightRecordsAndNamesWhoIsMissingAtTheEnd) {
  std::vector<RankRun> runs;
  for (int rank = 0; rank < 2; ++rank) {
    recording::Recorder recorder({.flight_recorder = 1000},
                                 {.session = 7, .rank = rank, .size = 2});
    kolo::internal::Descriptor descriptor;
    descriptor.tensors = {{kolo::DType::f32, kolo::Shape{10}}};
    const auto submit = [&](std::int64_t time) {
      return recorder.submitted({.name = "a", .bytes = 40, .descriptor = descriptor}, at(time));
    };
    // Before the time at which the record is written.
    const std::int64_t now = recording::Clock::now().time_since_epoch().count() - 1000 * ms;
    for (int step = 0; step < 3; ++step) {
      const auto tag = submit(now + step * 10 * ms);
      recorder.batch_started({.number = static_cast<std::uint64_t>(step), .operations = 1},
                             at(now + (step * 10 + 2) * ms));
      recorder.finished(tag, static_cast<std::uint64_t>(step),
                        {at(now + (step * 10 + 2) * ms), at(now + (step * 10 + 3) * ms)});
    }
    std::vector<recording::PendingOperation> pending;
    if (rank == 0) pending.push_back({submit(now + 30 * ms), &descriptor, false, 0});
    runs.push_back(read_run(recorder.write(directory_ + "/" + std::to_string(rank), "", pending)));
    ASSERT_GE(runs.back().operations.size(), 3U);
    EXPECT_EQ(runs.back().operations[1].agreed - runs.back().operations[1].begin, 2 * ms);
    EXPECT_EQ(runs.back().operations[1].end - runs.back().operations[1].agreed, 1 * ms);
  }
  const Activity activity = find_activity(runs, {});
  EXPECT_TRUE(activity.is_cut_off);
  EXPECT_EQ(late_in(activity, activity.steps.size() - 1), 1U);
  EXPECT_THAT(describe(activity), HasSubstr("at the end, operations wait for rank 1"));
}

TEST_F(Draw, RefusesWhatIsNoTimeline) {
  for (const char* const text :
       {"", "[", "[]", "[\n{\n", "[\n7\n", "[\n{\"ph\":\"M\"}\n]", "[\n{\"ph\":7}\n]",
        R"([
{"ph":"M","name":"process_name","pid":-1,"args":{}}
])",
        R"([
{"ph":"M","name":"process_name","pid":0}
{"ph":"X","pid":0,"ts":1e300,"dur":1,"name":"NEGOTIATE","cat":"operation","args":{"name":"a"}}
])",
        R"([
{"ph":"M","name":"process_name","pid":0}
{"ph":"X","pid":0,"ts":1,"dur":1,"name":"allreduce","cat":"operation","args":{"name":"a"}}
])"})
    EXPECT_THROW(static_cast<void>(written(text)), ReadError) << text;
}

TEST(Spans, AreUnitedAndSubtracted) {
  const auto lengths = [](const std::vector<Span>& spans) {
    std::vector<std::int64_t> all;
    for (const Span& span : spans) all.push_back(span.length());
    return all;
  };
  const std::vector<Span> united = unite({{5, 9, "long"}, {0, 2, ""}, {8, 10, ""}});
  EXPECT_THAT(lengths(united), ElementsAre(2, 5));
  EXPECT_EQ(united.back().text, "long");
  EXPECT_THAT(lengths(unite({{0, 2}, {5, 9}}, 3)), ElementsAre(9));
  EXPECT_THAT(lengths(subtract({{0, 10}}, {{2, 3}, {5, 20}})), ElementsAre(2, 2));
  EXPECT_THAT(subtract({{0, 10}, {11, 12}}, {{0, 12}}), IsEmpty());
  EXPECT_THAT(lengths(clip({{0, 10}}, {3, 5})), ElementsAre(2));
}

}  // namespace
}  // namespace diagnose
