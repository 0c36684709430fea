// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../support/file_size_limit.hpp"
#include "diagnostics/json_text.hpp"
#include "diagnostics/record_signal.hpp"
#include "diagnostics/recorder.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::diagnostics {
namespace {

using Json = nlohmann::json;

TEST(JsonText, IsReadBackByAParser) {
  for (const std::string text :
       {"", "plain", "quote \" and \\ and\nline\ttab\x01", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"})
    EXPECT_EQ(Json::parse(json_string(text)).get<std::string>(), text);
}

TEST(JsonText, ReplacesWhatIsNoUtf8) {
  // A lone byte, an overlong form, a surrogate, a cut character, beyond the last.
  for (const std::string text :
       {"\xFF", "\xC0\xAF", "\xED\xA0\x80", "a\xE2\x82", "\xF4\x90\x80\x80"}) {
    const std::string read = Json::parse(json_string(text)).get<std::string>();
    EXPECT_THAT(read, testing::HasSubstr("\xEF\xBF\xBD"));
  }
}

std::vector<Json> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

/// A path for this process alone.
std::string temporary(const std::string& name) {
  return fmt::format("{}{}-{}", testing::TempDir(), ::getpid(), name);
}

TEST(FlightRecord, HoldsHeaderNamesPendingNotesAndEvents) {
  const std::string path = temporary(flight_record_name(0xabcdef, 2));
  Descriptor descriptor;
  descriptor.type = OperationType::allreduce;
  descriptor.tensors = {{DType::f32, Shape{6}}};
  Recorder recorder({.flight_recorder = 3}, {.session = 0xabcdef, .rank = 2, .size = 4});
  const Subject subject{
      .name = "a \"name\"", .number = 0, .set = 1, .bytes = 24, .descriptor = descriptor};
  for (int i = 0; i < 4; ++i) recorder.failed(recorder.submitted(subject, {}), {});
  recorder.note(EventKind::peer_left, "rank 1 left", {});
  const Tag tag = recorder.submitted(subject, {});
  EXPECT_EQ(recorder.write(path, "to test it", {{tag, &descriptor}, {tag, &descriptor, true, 17}}),
            path);
  const std::vector<Json> lines = read_lines(path);
  ASSERT_EQ(lines.size(), 1U + 1 + 2 + 1 + 3 + 1);
  EXPECT_EQ(lines[0]["session"], "0000000000abcdef");
  EXPECT_EQ(lines[0]["rank"], 2);
  EXPECT_EQ(lines[0]["reason"], "to test it");
  EXPECT_EQ(lines[0]["events"], 10);
  EXPECT_EQ(lines[1]["text"], "a \"name\"");
  EXPECT_EQ(lines[1]["submitted"], 5);
  EXPECT_EQ(lines[2]["state"], "negotiating");
  EXPECT_EQ(lines[2]["count"], 4);
  EXPECT_EQ(lines[3]["batch"], 17);
  EXPECT_EQ(lines[4]["text"], "rank 1 left");
  EXPECT_EQ(lines[5]["event"], "failed");
  EXPECT_EQ(lines[6]["event"], "peer left");
  EXPECT_EQ(lines[7]["event"], "submitted");
  EXPECT_EQ(lines[7]["dtype"], "f32");
  EXPECT_EQ(lines[8]["lines"], lines.size() - 1);
  std::filesystem::remove(path);
}

TEST(FlightRecord, IsRefusedWhereNothingCanBeWritten) {
  const Recorder recorder({.flight_recorder = 3});
  EXPECT_THROW((void)recorder.write("/no/such/directory/record", "", {}), InvalidArgument);
}

TEST(FlightRecord, BeyondTheLimitOfFilesIsRefused) {
  const std::string path = temporary("limited");
  const Recorder recorder({.flight_recorder = 3});
  const FileSizeLimit limit(16);
  try {
    static_cast<void>(recorder.write(path, "", {}));
    FAIL() << "not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("RLIMIT_FSIZE of this process is 16 bytes"));
  }
  std::filesystem::remove(path);
}

TEST(FlightRecord, IsWrittenThroughALinkThatStays) {
  const std::string file = temporary("record_behind_link");
  const std::string link = temporary("link_to_record");
  std::filesystem::remove(link);
  std::ofstream(file) << "old";
  std::filesystem::create_symlink(file, link);
  const Recorder recorder({.flight_recorder = 3});
  (void)recorder.write(link, "", {});
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::string first;
  std::getline(std::ifstream(file) >> std::ws, first);
  EXPECT_THAT(first, testing::HasSubstr("session"));
  // A device without room: the error is reported, and the device is still there.
  EXPECT_THROW((void)recorder.write("/dev/full", "", {}), InvalidArgument);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  std::filesystem::remove(link);
  std::filesystem::remove(file);
}

TEST(FlightRecord, IsRefusedWhereNoEventsAreKept) {
  const Recorder recorder({.flight_recorder = 0});
  EXPECT_THROW((void)recorder.write(temporary("record"), "", {}), InvalidArgument);
}

TEST(FlightRecord, OnlyTheFirstFaultIsWritten) {
  const std::string directory = temporary("first_fault");
  const std::string path = directory + "/" + flight_record_name(5, 0);
  std::filesystem::remove_all(directory);
  Recorder recorder({.flight_recorder = 3, .flight_recorder_dir = directory}, {.session = 5});
  EXPECT_TRUE(recorder.expects_fault());
  recorder.fault(EventKind::stall, "the cause", {}, {});
  EXPECT_EQ(read_lines(path).at(0)["reason"], "the cause");
  EXPECT_FALSE(recorder.expects_fault());
  recorder.fault(EventKind::fault, "its consequence", {}, {});
  EXPECT_EQ(read_lines(path).at(0)["reason"], "the cause");
  std::filesystem::remove_all(directory);
}

TEST(FlightRecord, OffWritesNoFaults) {
  Recorder recorder({.flight_recorder = 3, .flight_recorder_dir = "off"});
  EXPECT_FALSE(recorder.expects_fault());
  recorder.fault(EventKind::fault, "no matter", {}, {});
  EXPECT_FALSE(std::filesystem::exists("off"));
}

int before_count = 0;

TEST(RecordSignal, IsCountedAndPassedOn) {
  std::signal(SIGUSR2, [](int) { ++before_count; });
  {
    RecordSignal signal(SIGUSR2);
    EXPECT_FALSE(signal.came());
    std::raise(SIGUSR2);
    EXPECT_TRUE(signal.came());
    EXPECT_FALSE(signal.came());
    EXPECT_EQ(before_count, 1);
  }
  std::raise(SIGUSR2);
  EXPECT_EQ(before_count, 2);
  std::signal(SIGUSR2, SIG_DFL);
}

}  // namespace
}  // namespace kolo::internal::diagnostics
