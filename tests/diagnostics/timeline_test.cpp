// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "../support/file_size_limit.hpp"
#include "diagnostics/recorder.hpp"
#include "diagnostics/timeline_file.hpp"
#include "kolo/error.hpp"
#include "trace.hpp"

namespace kolo::internal::diagnostics {
namespace {

using test::check_trace;
using test::find_events;
using test::read_trace;
using testing::HasSubstr;
using testing::SizeIs;
using namespace std::chrono_literals;

class TimelineTest : public testing::Test {
 protected:
  void TearDown() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + '~');
  }

  const std::string path_ = testing::TempDir() + "timeline" + std::to_string(::getpid()) + ".json";
};

Descriptor allreduce() {
  Descriptor descriptor;
  descriptor.type = OperationType::allreduce;
  descriptor.tensors = {{DType::f32, Shape{6}}};
  return descriptor;
}

/// A batch of two operations, each phase of it a microsecond long, from `begin` on. Returns its
/// end.
TimePoint record_batch(Recorder& recorder, std::uint64_t number, TimePoint begin) {
  const Descriptor descriptor = allreduce();
  std::vector<Tag> tags;
  for (const char* name : {"weight", "bias"})
    tags.push_back(recorder.submitted(
        {.name = name, .number = 0, .set = 0, .bytes = 24, .descriptor = descriptor}, begin));
  const TimePoint agreed = begin + 10us;
  recorder.batch_started({.number = number, .type = OperationType::allreduce, .operations = 2},
                         agreed);
  recorder.on_phase(number, Phase::pack, agreed + 5us, agreed + 6us);
  recorder.on_phase(number, Phase::reduce, agreed + 6us, agreed + 7us);
  recorder.on_phase(number, Phase::unpack, agreed + 7us, agreed + 8us);
  for (const Tag& tag : tags) recorder.finished(tag, number, {agreed, agreed + 9us});
  recorder.batch_done(number, agreed + 9us);
  return agreed + 9us;
}

TEST_F(TimelineTest, IsWholeFromTheBeginning) {
  Timeline timeline(path_, 3);
  EXPECT_EQ(check_trace(read_trace(path_)), "");
}

TEST_F(TimelineTest, ShowsOperationsBatchesAndPhases) {
  constexpr std::uint64_t batches = 50;
  Recorder recorder({});
  const auto timeline = std::make_shared<Timeline>(path_, 2);
  recorder.set_timeline(timeline);
  TimePoint now = Clock::now();
  for (std::uint64_t i = 0; i < batches; ++i) now = record_batch(recorder, i, now);
  recorder.note(EventKind::plan_begun, "a \"plan\"", now);
  recorder.set_timeline(nullptr);
  EXPECT_EQ(timeline->close(), "");
  const nlohmann::json trace = read_trace(path_);
  EXPECT_EQ(check_trace(trace), "");
  EXPECT_FALSE(std::filesystem::exists(path_ + '~')) << "there while it is written";
  EXPECT_THAT(find_events(trace, "X", "NEGOTIATE"), SizeIs(2 * batches));
  EXPECT_THAT(find_events(trace, "X", "allreduce"), SizeIs(2 * batches));
  for (const char* phase : {"WAIT", "PACK", "REDUCE", "UNPACK"})
    EXPECT_THAT(find_events(trace, "X", phase), SizeIs(batches)) << phase;
  EXPECT_THAT(find_events(trace, "i", "plan begun"), SizeIs(1));
  const auto negotiated = find_events(trace, "X", "NEGOTIATE").front();
  EXPECT_NEAR(negotiated.at("dur").get<double>(), 10.0, 0.01);
  EXPECT_EQ(negotiated.at("args").at("name"), "weight");
  EXPECT_EQ(negotiated.at("args").at("dtype"), "f32");
  EXPECT_EQ(negotiated.at("args").at("bytes"), 24);
  EXPECT_EQ(negotiated.at("pid"), 2);
  const auto batch = find_events(trace, "B", "batch 7").front();
  EXPECT_EQ(batch.at("args").at("operations"), 2);
}

TEST_F(TimelineTest, EndsAtTheLimitOfFiles) {
  TimelineFile file(path_);
  const FileSizeLimit limit(4096);
  file.add('"' + std::string(5000, 'x') + '"');
  file.flush();
  EXPECT_THAT(file.error(), HasSubstr("RLIMIT_FSIZE of this process is 4096 bytes"));
}

TEST_F(TimelineTest, StaysWhereItBegan) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(testing::TempDir());
  TimelineFile file(std::filesystem::path(path_).filename());
  std::filesystem::current_path("/");
  for (int i = 0; i < 4; ++i) {
    file.add("{}");
    file.flush();
  }
  file.finish();
  EXPECT_EQ(file.error(), "");
  EXPECT_THAT(read_trace(path_), SizeIs(4));
  EXPECT_FALSE(std::filesystem::exists(path_ + '~'));
  std::filesystem::current_path(before);
}

TEST_F(TimelineTest, BatchesThatOverlapHaveTracksOfTheirOwn) {
  Recorder recorder({});
  const auto timeline = std::make_shared<Timeline>(path_, 0);
  recorder.set_timeline(timeline);
  const TimePoint begin = Clock::now();
  recorder.batch_started({.number = 1}, begin);
  recorder.batch_started({.number = 2}, begin + 1us);
  recorder.batch_done(1, begin + 2us);
  recorder.batch_started({.number = 3}, begin + 3us);
  recorder.batch_done(2, begin + 4us);
  recorder.batch_done(3, begin + 5us);
  timeline->close();
  EXPECT_EQ(check_trace(read_trace(path_)), "");
}

TEST_F(TimelineTest, OperationsWithoutANameShareTracksButDoNotOverlap) {
  const Descriptor descriptor = allreduce();
  Recorder recorder({});
  const auto timeline = std::make_shared<Timeline>(path_, 0);
  recorder.set_timeline(timeline);
  TimePoint now = Clock::now();
  std::vector<Tag> tags;
  for (std::uint64_t i = 0; i < 30; ++i) {
    now += 1us;
    tags.push_back(recorder.submitted(
        {.name = "", .number = i, .set = 0, .bytes = 4, .descriptor = descriptor}, now));
    if (i % 3 != 2) continue;
    for (const Tag& tag : tags) recorder.failed(tag, now + 1us);
    tags.clear();
    now += 1us;
  }
  timeline->close();
  const nlohmann::json trace = read_trace(path_);
  EXPECT_EQ(check_trace(trace), "");
  EXPECT_THAT(find_events(trace, "M", "thread_name"), SizeIs(3));
}

TEST_F(TimelineTest, WhatWasPendingWhenItBeganIsLeftOut) {
  const Descriptor descriptor = allreduce();
  Recorder recorder({});
  const Subject subject{.name = "a", .set = 0, .bytes = 4, .descriptor = descriptor};
  const Tag tag = recorder.submitted(subject, Clock::now());
  recorder.batch_started({.number = 1}, Clock::now());
  const auto timeline = std::make_shared<Timeline>(path_, 0);
  recorder.set_timeline(timeline);
  recorder.on_phase(1, Phase::pack, Clock::now(), Clock::now());
  recorder.finished(tag, 1, {Clock::now(), Clock::now()});
  recorder.batch_done(1, Clock::now());
  timeline->close();
  const nlohmann::json trace = read_trace(path_);
  EXPECT_EQ(check_trace(trace), "");
  EXPECT_THAT(trace, SizeIs(2)) << "nothing but the rank's name";
}

TEST_F(TimelineTest, DropsRatherThanWaits) {
  constexpr std::size_t capacity = 64;
  constexpr std::uint64_t batches = 2000;
  Recorder recorder({});
  const auto timeline = std::make_shared<Timeline>(path_, 0, capacity);
  recorder.set_timeline(timeline);
  TimePoint now = Clock::now();
  for (std::uint64_t i = 0; i < batches; ++i) now = record_batch(recorder, i, now);
  timeline->close();
  const nlohmann::json trace = read_trace(path_);
  EXPECT_EQ(check_trace(trace), "");
  EXPECT_GT(timeline->dropped(), 0U);
  const std::string dropped = std::to_string(timeline->dropped()) + " spans were dropped so far";
  EXPECT_THAT(find_events(trace, "i", dropped), SizeIs(1));
}

TEST_F(TimelineTest, CutsLongNamesAndTakesAnyBytes) {
  const Descriptor descriptor = allreduce();
  Recorder recorder({});
  const auto timeline = std::make_shared<Timeline>(path_, 0);
  recorder.set_timeline(timeline);
  const std::string name = "\xFF\n\"" + std::string(100'000, 'x');
  const TimePoint now = Clock::now();
  const Subject subject{.name = name, .set = 0, .bytes = 4, .descriptor = descriptor};
  recorder.failed(recorder.submitted(subject, now), now);
  timeline->close();
  EXPECT_EQ(check_trace(read_trace(path_)), "");
  EXPECT_LT(std::filesystem::file_size(path_), 4 * max_text);
}

TEST_F(TimelineTest, IsWholeWhereverItsProcessIsKilled) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 10; ++round) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const ::pid_t child = ::fork();
    ASSERT_GE(child, 0);
    char begun = 0;
    if (child == 0) {
      Recorder recorder({});
      recorder.set_timeline(std::make_shared<Timeline>(path_, 0));
      if (::write(pipe[1], &begun, 1) != 1) ::_exit(1);
      TimePoint now = Clock::now();
      for (std::uint64_t i = 0;; ++i) now = record_batch(recorder, i, now);
    }
    EXPECT_EQ(::read(pipe[0], &begun, 1), 1);
    for (const int end : pipe) ::close(end);
    std::uniform_int_distribution<int> milliseconds(0, 60);  // any moment will do
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds(random)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const nlohmann::json trace = read_trace(path_);
    EXPECT_EQ(check_trace(trace, /*whole=*/false), "");
  }
}

TEST(TimelinePath, IsOfRankZeroUnlessItNamesTheRank) {
  EXPECT_EQ(path_of_rank("t.json", 0), "t.json");
  EXPECT_EQ(path_of_rank("t.json", 1), "");
  EXPECT_EQ(path_of_rank("", 0), "");
  EXPECT_EQ(path_of_rank("%r/t-%r.json", 12), "12/t-12.json");
}

TEST(TimelinePath, OfASessionHasItsNumber) {
  EXPECT_EQ(path_of_session("t.json", 2), "t.2.json");
  EXPECT_EQ(path_of_session("a.b/t-%r.json", 3), "a.b/t-%r.3.json");
  EXPECT_EQ(path_of_session("a.b/t", 12), "a.b/t.12");
  EXPECT_EQ(path_of_session("", 2), "");
}

TEST(TimelinePath, ThatCannotBeMadeIsRefused) {
  EXPECT_THROW(Timeline("/no/such/directory/t.json", 0), InvalidArgument);
}

TEST(TimelineFile, TellsThatTheDiskIsFull) {
  TimelineFile file("/dev/full");
  EXPECT_THAT(file.error(), HasSubstr("/dev/full"));
}

}  // namespace
}  // namespace kolo::internal::diagnostics
