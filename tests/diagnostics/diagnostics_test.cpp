// SPDX-License-Identifier: Apache-2.0
// Timelines, statistics and flight records of real sessions.
#include "kolo/diagnostics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "../support/file_size_limit.hpp"
#include "../support/world.hpp"
#include "kolo/kolo.hpp"
#include "trace.hpp"

namespace kolo::internal {
namespace {

using test::check_trace;
using test::find_events;
using test::read_trace;
using testing::HasSubstr;
using testing::SizeIs;

/// A directory that all ranks know, empty at first and gone at the end.
class Diagnostics : public testing::Test {
 protected:
  Diagnostics() {
    directory_ = with_mpi() ? name_by_mpi() : path_of_job("diagnostics-" + std::to_string(made_++));
    if (world_rank_ == 0) std::filesystem::create_directory(directory_);
    wait_for_all();
  }
  ~Diagnostics() override {
    wait_for_all();
    std::error_code ignored;
    if (world_rank_ == 0) std::filesystem::remove_all(directory_, ignored);
  }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (directory_ / name).string();
  }
  [[nodiscard]] std::string path_of(const std::string& stem, int rank) const {
    return path(stem + "-" + std::to_string(rank) + ".json");
  }

  const int world_rank_ = world_rank();  // outside a session, too
  std::filesystem::path directory_;

 private:
  static std::string name_by_mpi() {
    int process = ::getpid();
#ifdef KOLO_TEST_MPI
    MPI_Bcast(&process, 1, MPI_INT, 0, MPI_COMM_WORLD);
#endif
    return testing::TempDir() + "kolo-diagnostics-" + std::to_string(process) + '-' +
           std::to_string(made_++);
  }

  static inline int made_ = 0;
};

constexpr std::size_t large_elements = 300'000;

/// Three allreduces, two of them at once, and a broadcast.
void step() {
  std::vector<float> large(large_elements, 1.0F);
  std::vector<double> small(3, 2.0);
  Future<void> first = allreduce_async(large, {.name = "large"});
  Future<void> second = allreduce_async(small, {.name = "small"});
  first.wait();
  second.wait();
  allreduce(small, {.op = ReduceOp::sum});
  broadcast(small, 0, {.name = "weights"});
}

TEST_F(Diagnostics, ATimelineOfEachRankShowsItsSteps) {
  constexpr std::size_t steps = 12;
  {
    const Session session({.timeline = path("t-%r.json")});
    for (std::size_t i = 0; i < steps; ++i) step();
    EXPECT_NO_THROW((void)read_trace(path_of("t", rank()))) << "while it is written";
  }
  const nlohmann::json trace = read_trace(path_of("t", world_rank_));
  EXPECT_EQ(check_trace(trace), "");
  EXPECT_THAT(find_events(trace, "X", "allreduce"), SizeIs(3 * steps));
  EXPECT_THAT(find_events(trace, "X", "broadcast"), SizeIs(steps));
  EXPECT_THAT(find_events(trace, "X", "NEGOTIATE"), SizeIs(4 * steps));
  EXPECT_FALSE(find_events(trace, "X", "REDUCE").empty());
  for (const auto& event : find_events(trace, "X", "allreduce")) {
    const auto& arguments = event.at("args");
    if (arguments.at("name") != "large") continue;
    EXPECT_EQ(arguments.at("bytes"), large_elements * sizeof(float));
  }
}

TEST_F(Diagnostics, ATimelineWithoutARankIsOfRankZero) {
  {
    const Session session({.timeline = path("t.json")});
    step();
  }
  if (world_rank_ == 0) {
    EXPECT_EQ(check_trace(read_trace(path("t.json"))), "");
  }
}

TEST_F(Diagnostics, ATimelineBeginsAndEndsInTheMiddle) {
  const Session session;
  step();
  start_timeline(path("t-%r.json"));
  const InvalidArgument refused = [&] {
    try {
      start_timeline(path("other-%r.json"));
    } catch (const InvalidArgument& error) {
      return error;
    }
    return InvalidArgument("not refused");
  }();
  EXPECT_THAT(refused.what(), HasSubstr("written already"));
  step();
  stop_timeline();
  stop_timeline();  // none any more
  step();
  const nlohmann::json trace = read_trace(path_of("t", rank()));
  EXPECT_EQ(check_trace(trace), "");
  EXPECT_THAT(find_events(trace, "X", "broadcast"), SizeIs(1));
  start_timeline(path("again-%r.json"));
  step();
  stop_timeline();
  EXPECT_THAT(find_events(read_trace(path_of("again", rank())), "X", "broadcast"), SizeIs(1));
}

TEST_F(Diagnostics, ATimelineThatCannotBeMadeIsRefusedOnAllRanks) {
  try {
    const Session session({.timeline = "/no/such/directory/t.json"});
    ADD_FAILURE() << "it was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0: the timeline \"/no/such/directory/t.json\""));
  }
}

TEST_F(Diagnostics, StatisticsThatCannotBeWrittenAreRefusedOnAllRanks) {
  const std::string me = std::to_string(world_rank_);
  try {
    const Session session({.statistics = "/no/such/directory/s-%r.txt"});
    ADD_FAILURE() << "it was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank " + me + ": the statistics \"/no/such/directory/s-" +
                                        me + ".txt\" cannot be written: No such file"));
  }
}

TEST_F(Diagnostics, RelativePathsAreThoseOfTheStart) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_);
  std::string record;
  {
    const Session session(
        {.flight_recorder_dir = ".", .timeline = "t-%r.json", .statistics = "s-%r.txt"});
    std::filesystem::current_path("/");
    step();
    record = write_flight_record();
  }
  std::filesystem::current_path(before);
  const std::string me = std::to_string(world_rank_);
  EXPECT_EQ(check_trace(read_trace(path("t-" + me + ".json"))), "");
  EXPECT_FALSE(std::filesystem::exists(path("t-" + me + ".json~")));
  EXPECT_GT(std::filesystem::file_size(path("s-" + me + ".txt")), 0U);
  EXPECT_TRUE(std::filesystem::equivalent(std::filesystem::path(record).parent_path(), directory_));
}

TEST_F(Diagnostics, StatisticsBeyondTheLimitOfFilesAreNotWritten) {
  const Session session({.statistics = path("s-%r.txt")});
  step();
  const FileSizeLimit limit(16);
  shutdown();
}

TEST_F(Diagnostics, StatisticsCountWhatWasDone) {
  constexpr std::uint64_t steps = 5;
  const Session session({.statistics = path("s-%r.txt")});
  for (std::uint64_t i = 0; i < steps; ++i) step();
  const Statistics all = statistics();
  EXPECT_EQ(all.submitted, 4 * steps);
  EXPECT_EQ(all.finished, 4 * steps);
  EXPECT_EQ(all.failed, 0U);
  ASSERT_THAT(all.kinds, SizeIs(2));
  EXPECT_EQ(all.kinds[0].operation, "allreduce");
  EXPECT_EQ(all.kinds[0].operations, 3 * steps);
  EXPECT_EQ(all.kinds[0].bytes, steps * (large_elements * 4 + 2 * 3 * 8));
  EXPECT_EQ(all.batch_operations.sum, 4 * steps);
  EXPECT_EQ(all.batch_operations.count, all.batches);
  EXPECT_EQ(all.execution.count, all.batches);
  EXPECT_GT(all.reducing.sum, 0U);
  EXPECT_LE(all.packing.sum + all.reducing.sum + all.unpacking.sum, all.execution.sum);
  if (size() > 1) {
    EXPECT_GT(all.messages_sent + all.messages_received, 0U);
  }
}

TEST_F(Diagnostics, StatisticsAreWrittenAtTheEnd) {
  {
    const Session session({.statistics = path("s-%r.json")});
    step();
  }
  std::ifstream file(path_of("s", world_rank_));
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("operations: 4 submitted, 4 finished, 0 failed"));
}

TEST_F(Diagnostics, AMismatchCountsAsFailed) {
  const Session session;
  if (size() == 1) return;
  std::vector<float> tensor(static_cast<std::size_t>(rank() + 1));
  EXPECT_THROW(allreduce(tensor, {.name = "uneven"}), Mismatch);
  EXPECT_EQ(statistics().failed, 1U);
}

std::vector<nlohmann::json> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST_F(Diagnostics, AFlightRecordIsWrittenOnRequest) {
  const Session session({.flight_recorder = 6, .flight_recorder_dir = directory_.string()});
  for (int i = 0; i < 3; ++i) step();
  std::vector<int> value(1);
  // Rank 0 comes late, so it is pending on the others.
  if (rank() > 0) {
    const Future<void> pending = allreduce_async(value, {.name = "late"});
    const std::string written = write_flight_record();
    EXPECT_EQ(std::filesystem::path(written).parent_path(), directory_);
    const auto lines = read_lines(written);
    EXPECT_EQ(lines.front().at("rank"), rank());
    EXPECT_EQ(lines.front().at("capacity"), 6);
    bool found = false;
    for (const auto& line : lines)
      found |= line.contains("pending") && line.at("details") == "allreduce average i32 [1]";
    EXPECT_TRUE(found);
    wait_for_all();
  } else {
    EXPECT_EQ(write_flight_record(path("mine")), path("mine"));
    wait_for_all();
    allreduce(value, {.name = "late"});
  }
}

TEST_F(Diagnostics, WithoutAFlightRecorderThereIsNoRecord) {
  const Session session({.flight_recorder = 0});
  step();
  EXPECT_THROW((void)write_flight_record(path("none")), InvalidArgument);
  EXPECT_EQ(statistics().finished, 4U);
}

TEST(DiagnosticsOutsideASession, AreRefused) {
  EXPECT_THROW((void)statistics(), NotInitialized);
  EXPECT_THROW(start_timeline("t.json"), NotInitialized);
  EXPECT_THROW(stop_timeline(), NotInitialized);
  EXPECT_THROW((void)write_flight_record(), NotInitialized);
}

}  // namespace
}  // namespace kolo::internal
