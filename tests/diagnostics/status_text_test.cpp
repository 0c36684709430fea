// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/status_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "diagnostics/status_file.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::diagnostics {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

JobPace some_job() {
  return {.session = 0x1234,
          .size = 3,
          .ranks = {{.rank = 0,
                     .host = "a",
                     .steps = 7,
                     .step = 50ms,
                     .computing = 30ms,
                     .bytes_per_second = 1000},
                    {.rank = 2, .host = "b\"\\", .waits_for = "allreduce \"x\" for 2 s"}},
          .stragglers = {{.rank = 0, .late = 20ms, .step = 50ms, .tensor = "w\n", .since_step = 3}},
          .verdict = "so \"it\" is"};
}

TEST(StatusText, JsonHoldsEverything) {
  const auto json = nlohmann::json::parse(to_json(some_job()));
  EXPECT_EQ(json.at("session"), "0000000000001234");
  EXPECT_EQ(json.at("size"), 3);
  EXPECT_EQ(json.at("verdict"), "so \"it\" is");
  EXPECT_EQ(json.at("straggler").at("rank"), 0);
  EXPECT_EQ(json.at("straggler").at("late_ms"), 20.0);
  EXPECT_EQ(json.at("straggler").at("tensor"), "w\n");
  EXPECT_EQ(json.at("straggler").at("since_step"), 3);
  const auto& ranks = json.at("ranks");
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].at("steps"), 7);
  EXPECT_EQ(ranks[0].at("computing_ms"), 30.0);
  EXPECT_EQ(ranks[0].at("waiting_ms"), 20.0);
  EXPECT_EQ(ranks[0].at("bytes_per_second"), 1000);
  EXPECT_EQ(ranks[1].at("host"), "b\"\\");
  EXPECT_EQ(ranks[1].at("waits_for"), "allreduce \"x\" for 2 s");
  JobPace even = some_job();
  even.stragglers.clear();
  EXPECT_TRUE(nlohmann::json::parse(to_json(even)).at("straggler").is_null());
}

TEST(StatusText, MetricsAreInPrometheusFormat) {
  JobPace job = some_job();
  job.ranks[1].steps = 6;
  const std::string text = to_metrics(job);
  EXPECT_THAT(text, HasSubstr("# TYPE kolo_steps_total counter\n"
                              "kolo_steps_total{rank=\"0\",host=\"a\"} 7\n"
                              "kolo_steps_total{rank=\"2\",host=\"b\\\"\\\\\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("\nkolo_computing_seconds{rank=\"0\",host=\"a\"} 0.03\n"));
  EXPECT_THAT(text, HasSubstr("\nkolo_late_seconds{rank=\"0\",tensor=\"w\\n\"} 0.02\n"));
  job.stragglers.clear();
  job.ranks[1].steps = 0;
  EXPECT_THAT(to_metrics(job), Not(HasSubstr("kolo_late_seconds")));
  EXPECT_THAT(to_metrics(job), Not(HasSubstr("rank=\"2\"")));  // not known yet, not 0
  job.ranks[0].host = "\xff\xc3\xa4";
  EXPECT_THAT(to_metrics(job), HasSubstr("host=\"?\xc3\xa4\""));
}

TEST(StatusText, AStragglerIsNamedWithItsOperation) {
  EXPECT_EQ(to_string(Straggler{2, 20100us, 121ms, "layer3.weight", 1200}),
            "rank 2 is late by 20.1 ms per step of 121.0 ms, since step 1200: it computes longer "
            "than the others before \"layer3.weight\"");
  EXPECT_THAT(to_string(Straggler{2, 20100us, 121ms, "", 1200}),
              testing::EndsWith("than the others before operations without a name"));
  EXPECT_THAT(to_string(Straggler{2, 20100us, 121ms, std::nullopt, 1200}),
              testing::EndsWith("than the others, before many operations"));
}

class StatusFileTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(directory_); }
  [[nodiscard]] std::string content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path directory_ = [] {
    std::string path = (std::filesystem::temp_directory_path() / "kolo_status_XXXXXX").string();
    return std::filesystem::path(::mkdtemp(path.data()));
  }();
  std::string path_ = directory_ / "status.json";
};

TEST_F(StatusFileTest, HasTheLastTextUntilTheEnd) {
  StatusFile::refuse_other_files(path_);
  EXPECT_FALSE(std::filesystem::exists(path_));  // a reader would find no status in it
  {
    StatusFile file(path_);
    for (const std::string text : {"one", "two", "three"}) file.write(text);
    while (content() != "three") std::this_thread::yield();
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

// A directory may be cleaned while a job runs for a month.
TEST_F(StatusFileTest, ADirectoryThatComesAndGoesIsNoFailure) {
  const std::string path = directory_ / "later" / "status.json";
  StatusFile::refuse_other_files(path);
  StatusFile file(path);
  file.write("one");
  std::filesystem::create_directory(directory_ / "later");
  while (!std::filesystem::exists(path)) file.write("two");
}

TEST_F(StatusFileTest, OtherFilesAreLeftAlone) {
  const auto put = [&](const std::string& text) { std::ofstream(path_) << text; };
  put("precious");
  EXPECT_THROW(StatusFile::refuse_other_files(path_), InvalidArgument);
  EXPECT_EQ(content(), "precious");
  for (const std::string& text : {to_json({}), to_metrics(some_job()), std::string()}) {
    put(text);
    EXPECT_NO_THROW(StatusFile::refuse_other_files(path_)) << text;
  }
}

TEST_F(StatusFileTest, NoLinkIsFollowed) {
  const std::string other = directory_ / "other";
  std::ofstream(other) << "precious";
  std::filesystem::create_symlink(other, path_ + ".part");
  {
    StatusFile status(path_);
    status.write("text");
    while (!std::filesystem::exists(path_)) std::this_thread::yield();
  }
  std::ifstream file(other);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "precious");
}

// A pipe without a reader would hold up the start of the session.
TEST_F(StatusFileTest, WhatIsNoFileIsRefused) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THROW(StatusFile::refuse_other_files(path_), InvalidArgument);
  EXPECT_THROW(StatusFile::refuse_other_files(directory_), InvalidArgument);
  EXPECT_THROW(StatusFile::refuse_other_files("/dev/null"), InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::diagnostics
