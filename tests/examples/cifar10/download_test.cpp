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
    publish("content");
  }

  // Makes an archive with these arguments of tar.
  void publish(const std::string& content) {
    const std::string tar = "tar -C '" + directory_.path().string() + "' -czf '" +
                            published_.string() + "' " + content + " 2>/dev/null";
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
  EXPECT_THAT(error(), HasSubstr("cannot unpack"));
  EXPECT_FALSE(std::filesystem::exists(target_ / "content"));
}

TEST_F(Download, RefusesAnArchiveWithoutItsEnd) {
  directory_.write("content/long.txt", std::string(1 << 20, 'x'));
  publish("content");
  std::filesystem::resize_file(published_, archive_.bytes / 2);
  archive_.md5 = md5_of(published_);
  EXPECT_THAT(error(), HasSubstr("cannot unpack"));
  EXPECT_TRUE(std::filesystem::is_empty(target_));
}

// As an archive of CIFAR-10 never does: the published checksum would have to be that of a bad one.
TEST_F(Download, WritesNothingOutsideOfItsDirectory) {
  publish("--absolute-names --transform 's,^content/data,../outside,' content/data.txt");
  EXPECT_THAT(error(), HasSubstr("its entry '../outside.txt' leads elsewhere"));
  publish("--absolute-names --transform 's,^content/data," +
          (directory_.path() / "absolute").string() + ",' content/data.txt");
  EXPECT_THAT(error(), HasSubstr("absolute.txt' leads elsewhere"));
  EXPECT_FALSE(std::filesystem::exists(target_ / "outside.txt"));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "absolute.txt"));
}

TEST_F(Download, FollowsNoLinks) {
  std::filesystem::create_symlink(directory_.path(), directory_.path() / "content" / "link");
  publish("content");
  EXPECT_THAT(error(), HasSubstr("link' is neither a file nor a directory"));
  EXPECT_TRUE(std::filesystem::is_empty(target_));
}

}  // namespace
