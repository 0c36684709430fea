// SPDX-License-Identifier: Apache-2.0
// Downloads from file:// addresses: libcurl handles them the same way, without a network.
#include "download.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "temporary_directory.hpp"

namespace {

using namespace cifar10;
using testing::AllOf;
using testing::HasSubstr;

class Download : public testing::Test {
 protected:
  Download() {
    directory_.write("content/data.txt", "abc");
    const std::string tar =
        "tar -C '" + directory_.path().string() + "' -czf '" + published_.string() + "' content";
    if (std::system(tar.c_str()) != 0) throw std::runtime_error("tar failed");
    archive_ = {.url = "file://" + published_.string(),
                .file = "archive.tar.gz",
                .content = "content",
                .bytes = std::filesystem::file_size(published_),
                .md5 = md5_of(published_)};
  }

  [[nodiscard]] std::string error() const {
    try {
      download(archive_, target_);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryDirectory directory_;
  std::filesystem::path published_ = directory_.path() / "published.tar.gz";
  std::filesystem::path target_ = directory_.path() / "deep" / "target";
  Archive archive_;
};

TEST(Md5, OfKnownContent) {
  const TemporaryDirectory directory;
  EXPECT_EQ(md5_of(directory.write("a", "abc")), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5_of(directory.write("b", "")), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_THROW((void)md5_of(directory.path() / "missing"), std::runtime_error);
}

TEST_F(Download, UnpacksWhatWasFetchedAndLeavesNothingElse) {
  EXPECT_EQ(error(), "no error");
  EXPECT_EQ(md5_of(target_ / "content" / "data.txt"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(target_), {}), 1);
}

TEST_F(Download, DoesNothingIfTheContentIsThere) {
  std::filesystem::create_directories(target_ / "content");
  archive_.url = "file:///nowhere";
  EXPECT_EQ(error(), "no error");
}

TEST_F(Download, RefusesAWrongChecksum) {
  archive_.md5 = "00000000000000000000000000000000";
  EXPECT_THAT(error(), AllOf(HasSubstr(archive_.url), HasSubstr(archive_.md5),
                             HasSubstr(md5_of(published_))));
  EXPECT_TRUE(std::filesystem::is_empty(target_));
}

TEST_F(Download, SaysWhatCouldNotBeFetched) {
  archive_.url = "file:///nowhere/archive.tar.gz";
  EXPECT_THAT(error(), HasSubstr("cannot download file:///nowhere/archive.tar.gz"));
  EXPECT_TRUE(std::filesystem::is_empty(target_));
}

TEST_F(Download, RefusesAnArchiveThatIsNone) {
  directory_.write("published.tar.gz", "not an archive");
  archive_.md5 = md5_of(published_);
  EXPECT_THAT(error(), HasSubstr("tar could not unpack"));
  EXPECT_FALSE(std::filesystem::exists(target_ / "content"));
}

}  // namespace
