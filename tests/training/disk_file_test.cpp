// SPDX-License-Identifier: Apache-2.0
#include "training/safetensors/disk_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string>

#include "../support/file_size_limit.hpp"
#include "scratch_directory.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// As ranks do that all save to one path.
TEST(DiskFile, TwoWritersOfOnePathDoNotMix) {
  const testing_support::ScratchDirectory directory;
  const fs::path path = directory.path() / "file";
  write_file(path, "file", [&](File& first) {
    first.write("the");
    write_file(path, "file", [&](File& second) { second.write("a second one, which is longer"); });
    EXPECT_EQ(text_of(path), "a second one, which is longer");
    first.write(" first");
  });
  EXPECT_EQ(text_of(path), "the first");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

TEST(DiskFile, BeyondTheLimitOfTheProcessIsAnError) {
  const testing_support::ScratchDirectory directory;
  const fs::path path = directory.path() / "file";
  const FileSizeLimit limit(4096);
  try {
    write_file(path, "checkpoint", [](File& file) { file.write(std::string(5000, 'x')); });
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.fault(), CheckpointFault::io);
    EXPECT_THAT(error.what(), testing::HasSubstr("RLIMIT_FSIZE of this process is 4096 bytes"));
  }
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

TEST(DiskFile, APipeIsRefusedAndNotAwaited) {
  const testing_support::ScratchDirectory directory;
  const fs::path path = directory.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  try {
    static_cast<void>(open_to_read(path, "checkpoint"));
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.fault(), CheckpointFault::foreign);
    EXPECT_THAT(error.what(), testing::HasSubstr("pipe' is not a regular file"));
  }
}

}  // namespace
}  // namespace kolo::internal
