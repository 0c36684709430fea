// SPDX-License-Identifier: Apache-2.0
#include "top.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "diagnostics/status_text.hpp"
#include "status_directory.hpp"

namespace diagnose {
namespace {

using namespace std::chrono_literals;
using kolo::internal::JobPace;
using std::chrono::system_clock;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

JobPace some_job() {
  return {.size = 3,
          .ranks = {{.rank = 0,
                     .host = "a",
                     .steps = 7,
                     .step = 50ms,
                     .computing = 30ms,
                     .bytes_per_second = 3 << 20},
                    {.rank = 2, .host = "b", .waits_for = "allreduce \"x\" for 2 s"}},
          .verdict = "rank 0 waits"};
}

TEST(Top, ShowsTheRanksAndTheVerdict) {
  const std::string table =
      status_as_table(kolo::internal::diagnostics::to_json(some_job()), system_clock::now());
  EXPECT_THAT(table, HasSubstr(", 2 of 3 ranks, the slowest computes 0 % longer"));
  EXPECT_THAT(table, ContainsRegex("\n +0 +a +7 +20[.]00 +30[.]0 +20[.]0 +3[.]0"));
  EXPECT_THAT(table, ContainsRegex("\n +2 +b +- .*- +allreduce \"x\" for 2 s\n"));
  EXPECT_THAT(table, testing::EndsWith("\nrank 0 waits\n"));
  EXPECT_THAT(table, Not(HasSubstr("has written nothing")));
}

TEST(Top, SaysThatAStatusIsOld) {
  EXPECT_THAT(
      status_as_table(kolo::internal::diagnostics::to_json(some_job()), system_clock::now() + 12s),
      HasSubstr("rank 0 has written nothing for 12 s"));
}

TEST(Top, PrintsNothingThatATerminalObeys) {
  JobPace job = some_job();
  job.ranks[0].host = "\x1b[31m\n";
  EXPECT_THAT(status_as_table(kolo::internal::diagnostics::to_json(job), system_clock::now()),
              AllOf(HasSubstr("?[31m?"), Not(HasSubstr("\x1b"))));
}

TEST(Top, RefusesOtherTexts) {
  for (const char* text :
       {"", "{}", "[]", "kolo_steps_total 7\n", "{\"ranks\":[{}]}", "{\"kolo_status\":99}"})
    EXPECT_THROW((void)status_as_table(text, system_clock::now()), StatusError) << text;
}

class StatusFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("KOLO_STATUS_FILE");
    std::string path = (std::filesystem::temp_directory_path() / "kolo_top_XXXXXX").string();
    ::setenv("TMPDIR", ::mkdtemp(path.data()), 1);
  }
  void TearDown() override {
    std::filesystem::remove_all(std::getenv("TMPDIR"));
    ::unsetenv("TMPDIR");
  }
  static std::string add(const std::string& name) {
    std::filesystem::create_directories(kolo::internal::status_directory());
    const std::string path = kolo::internal::status_directory() + "/" + name;
    std::ofstream(path) << "x";
    return path;
  }
  static std::string refusal() {
    try {
      return find_status_file("");
    } catch (const StatusError& error) {
      return error.what();
    }
  }
};

TEST_F(StatusFilesTest, TheOnlyJobNeedsNoName) {
  EXPECT_THAT(refusal(), HasSubstr("no kolorun of this user"));
  add("999999999.json");  // of a kolorun that was killed: there are fewer process IDs
  EXPECT_THAT(refusal(), HasSubstr("no kolorun of this user"));
  const std::string own = std::to_string(::getpid());
  const std::string one = add(own + ".json");
  add(own + ".json.part");
  EXPECT_EQ(find_status_file(""), one);
  add("1.json");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("several jobs"), HasSubstr("1, " + own)));
}

TEST_F(StatusFilesTest, AJobIsAProcessOrAFile) {
  EXPECT_EQ(find_status_file("4711"), kolo::internal::status_directory() + "/4711.json");
  EXPECT_EQ(find_status_file("./4711"), "./4711");
  ::setenv("KOLO_STATUS_FILE", "/some/file", 1);
  EXPECT_EQ(find_status_file(""), "/some/file");
  EXPECT_EQ(find_status_file("/other"), "/other");
  ::unsetenv("KOLO_STATUS_FILE");
}

TEST_F(StatusFilesTest, AFileThatIsNotThereIsNoJob) {
  EXPECT_THROW((void)top({.job = "/no/such/file", .once = true}), StatusError);
  EXPECT_THROW((void)top({.job = "/no/such/file"}), StatusError);
  EXPECT_THROW((void)top({.job = "/"}), StatusError);
}

}  // namespace
}  // namespace diagnose
