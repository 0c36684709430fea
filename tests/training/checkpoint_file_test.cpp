// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "kolo/error.hpp"
#include "scratch_directory.hpp"
#include "training/bytes.hpp"
#include "training/checkpoint_payload.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

std::string bytes_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void put(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

CheckpointError error_of(const fs::path& path) {
  try {
    (void)read_checkpoint(path);
  } catch (const CheckpointError& error) {
    return error;
  }
  ADD_FAILURE() << "no exception";
  return {CheckpointFault::io, path, ""};
}

// Makes this process's writes fail beyond this file size, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(::rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const ::rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    static_cast<void>(std::signal(SIGXFSZ, handler_));
  }

 private:
  ::rlimit before_{};
  void (*handler_)(int);
};

class CheckpointFile : public testing::Test {
 protected:
  testing_support::ScratchDirectory directory_;
  const fs::path path_ = directory_.path() / "a.kolo";
  const std::string payload_ = "some bytes, " + std::string(300, '\xAB') + std::string(1, '\0');
};

TEST_F(CheckpointFile, ComesBackAsItWasWritten) {
  write_checkpoint(path_, 1LL << 40, 1.0 / 3.0, payload_);
  const CheckpointContents contents = read_checkpoint(path_);
  EXPECT_EQ(contents.header.step, 1LL << 40);
  EXPECT_EQ(contents.header.metric, 1.0 / 3.0);
  EXPECT_EQ(contents.payload, payload_);
  EXPECT_EQ(read_checkpoint_header(path_).payload_bytes, payload_.size());
  EXPECT_FALSE(fs::exists(unfinished_name(path_)));

  write_checkpoint(path_, 3, std::nullopt, "");
  EXPECT_FALSE(read_checkpoint(path_).header.metric.has_value());
  EXPECT_THAT(read_checkpoint(path_).payload, IsEmpty());
}

TEST_F(CheckpointFile, CutAnywhereIsTruncated) {
  write_checkpoint(path_, 1, 0.5, payload_);
  const std::string whole = bytes_of(path_);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(path_, whole.substr(0, length));
    const CheckpointError error = error_of(path_);
    ASSERT_EQ(error.fault(), CheckpointFault::truncated) << length << ": " << error.what();
    ASSERT_EQ(error.path(), path_);
    ASSERT_THAT(error.what(), HasSubstr(path_.string()));
  }
}

TEST_F(CheckpointFile, AnyByteChangedIsCorrupt) {
  write_checkpoint(path_, 1, 0.5, payload_);
  const std::string whole = bytes_of(path_);
  for (std::size_t place = 0; place < whole.size(); ++place) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ 0x10);
    put(path_, changed);
    const CheckpointFault expected =
        place < 8 ? CheckpointFault::foreign : CheckpointFault::corrupt;
    ASSERT_EQ(error_of(path_).fault(), expected) << place;
  }
}

TEST_F(CheckpointFile, LongerThanItSaysIsCorrupt) {
  write_checkpoint(path_, 1, 0.5, payload_);
  put(path_, bytes_of(path_) + "x");
  EXPECT_EQ(error_of(path_).fault(), CheckpointFault::corrupt);
}

/// Updates the checksum of a changed header.
std::string with_checksum(std::string bytes) {
  const std::uint32_t checksum = crc32(std::string_view(bytes).substr(0, 44));
  for (std::size_t i = 0; i < 4; ++i) bytes[44 + i] = static_cast<char>(checksum >> (8 * i));
  return bytes;
}

TEST_F(CheckpointFile, ALengthThatNoFileHasIsCorrupt) {
  // 2^64 - 48 more bytes: with the header, the sum wraps to the length of the file.
  write_checkpoint(path_, 1, 0.5, "");
  std::string bytes = bytes_of(path_);
  bytes.replace(32, 8, "\xD0" + std::string(7, '\xFF'));
  put(path_, with_checksum(bytes).substr(0, 48));
  EXPECT_EQ(error_of(path_).fault(), CheckpointFault::corrupt);
  bytes.replace(32, 8, std::string(8, '\xFF'));
  put(path_, with_checksum(bytes));
  EXPECT_EQ(error_of(path_).fault(), CheckpointFault::corrupt);
}

TEST_F(CheckpointFile, HasASerialNumberBesideTheMetric) {
  for (const std::uint32_t serial : {1U, max_serial}) {
    for (const std::optional<double> metric : {std::optional<double>(), std::optional(0.5)}) {
      write_checkpoint(path_, 1, metric, payload_, serial);
      const CheckpointHeader header = read_checkpoint_header(path_);
      EXPECT_EQ(header.serial, serial);
      EXPECT_EQ(header.metric, metric);
    }
  }
}

TEST_F(CheckpointFile, OfVersionOneIsReadAndHasNoSerialNumber) {
  for (const std::optional<double> metric : {std::optional<double>(), std::optional(0.5)}) {
    write_checkpoint(path_, 7, metric, payload_);
    std::string bytes = bytes_of(path_);
    bytes[8] = 1;
    put(path_, with_checksum(bytes));
    const CheckpointContents contents = read_checkpoint(path_);
    EXPECT_EQ(contents.header.step, 7);
    EXPECT_EQ(contents.header.metric, metric);
    EXPECT_EQ(contents.header.serial, 0U);
    EXPECT_EQ(contents.payload, payload_);
  }
}

TEST_F(CheckpointFile, OfALaterVersionIsForeign) {
  write_checkpoint(path_, 1, 0.5, payload_);
  std::string bytes = bytes_of(path_);
  bytes[8] = 3;
  put(path_, with_checksum(bytes));
  EXPECT_EQ(error_of(path_).fault(), CheckpointFault::foreign);
  EXPECT_THAT(error_of(path_).what(), HasSubstr("version 3"));
  put(path_, "#!/bin/sh");
  EXPECT_EQ(error_of(path_).fault(), CheckpointFault::foreign);
}

TEST_F(CheckpointFile, ThatIsNotThereIsMissing) {
  EXPECT_EQ(error_of("/nowhere/a.kolo").fault(), CheckpointFault::missing);
  EXPECT_EQ(error_of(directory_.path() / "other.kolo").fault(), CheckpointFault::missing);
  EXPECT_EQ(error_of(directory_.path()).fault(), CheckpointFault::io);
}

TEST_F(CheckpointFile, AFailedWriteLeavesTheOldFileAndNothingElse) {
  write_checkpoint(path_, 1, 0.5, payload_);
  const std::string before = bytes_of(path_);
  {
    const FileSizeLimit full(100);
    EXPECT_THROW(write_checkpoint(path_, 2, 0.5, payload_), CheckpointError);
  }
  EXPECT_EQ(bytes_of(path_), before);
  EXPECT_FALSE(fs::exists(unfinished_name(path_)));
  EXPECT_THROW(write_checkpoint("/nowhere/a.kolo", 1, {}, payload_), CheckpointError);
}

TEST(CheckpointPayload, ComesBackAsItWas) {
  const Blobs parts{{"model", std::string("\0\1\2", 3)}, {"", "unnamed"}, {"empty", ""}};
  const Blobs own0{{"random", "zero"}};
  const CheckpointPayload payload = decode(encode(parts, {encode(own0), encode(Blobs{})}));
  EXPECT_EQ(payload.parts, parts);
  EXPECT_THAT(payload.own, testing::ElementsAre(own0, Blobs{}));
}

TEST(CheckpointPayload, RefusesAnythingElse) {
  const std::string bytes = encode({{"a", "bc"}}, {encode(Blobs{})});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW((void)decode(bytes.substr(0, length)), InvalidArgument) << length;
  }
  EXPECT_THROW((void)decode(bytes + "x"), InvalidArgument);
  EXPECT_THROW((void)decode(std::string(64, '\xFF')), InvalidArgument);
}

TEST(Checksum, IsThatOfZlibAndPng) {
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32("6789", crc32("12345")), 0xCBF43926U);
  EXPECT_EQ(crc32(""), 0U);
}

}  // namespace
}  // namespace kolo::internal
