// SPDX-License-Identifier: Apache-2.0
#include "image_folder.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "temporary_directory.hpp"

namespace {

using namespace xray;

class Folder : public testing::Test {
 protected:
  Folder() {
    for (int i = 0; i < 30; ++i) directory_.write("sick/" + std::to_string(i) + ".jpg", "");
    for (int i = 0; i < 10; ++i) directory_.write("healthy/" + std::to_string(i) + ".PNG", "");
    directory_.write("sick/notes.txt", "");
    directory_.write("notes/readme.txt", "");
  }
  TemporaryDirectory directory_;
};

TEST_F(Folder, GivesImagesTheLabelOfTheirFolder) {
  const ImageFolder found = read_folder(directory_.path());
  EXPECT_EQ(found.classes, (std::vector<std::string>{"healthy", "sick"}));
  ASSERT_EQ(found.files.size(), 40U);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(found.files[i].label, i < 10 ? 0 : 1);
    EXPECT_EQ(found.files[i].path.parent_path().filename(), i < 10 ? "healthy" : "sick");
  }
}

TEST_F(Folder, MustHaveTwoClasses) {
  directory_.write("third/a.jpg", "");
  EXPECT_THROW((void)read_folder(directory_.path()), std::runtime_error);
  EXPECT_THROW((void)read_folder(directory_.path() / "third"), std::runtime_error);
  EXPECT_THROW((void)read_folder(directory_.path() / "nowhere"), std::runtime_error);
}

TEST_F(Folder, IsSplitWithoutLossAndInProportion) {
  const ImageFolder found = read_folder(directory_.path());
  const Split parts = split(found, 0.2, /*seed=*/5);
  EXPECT_EQ(parts.validation.size(), 8U);
  std::set<std::string> seen;
  int sick = 0;
  for (const LabeledFile& file : parts.validation) {
    seen.insert(file.path);
    sick += file.label == 1 ? 1 : 0;
  }
  EXPECT_EQ(sick, 6);
  for (const LabeledFile& file : parts.train) seen.insert(file.path);
  EXPECT_EQ(parts.train.size(), 32U);
  EXPECT_EQ(seen.size(), 40U);
}

TEST_F(Folder, IsSplitAlikeForTheSameSeedOnly) {
  const ImageFolder found = read_folder(directory_.path());
  const auto paths = [&](std::uint64_t seed) {
    std::vector<std::string> list;
    for (const LabeledFile& file : split(found, 0.3, seed).validation) list.push_back(file.path);
    return list;
  };
  EXPECT_EQ(paths(1), paths(1));
  EXPECT_NE(paths(1), paths(2));
}

// For n images, c of them in a class, the weight is n / 2c, so that each class counts n / 2 in
// total.
TEST_F(Folder, HasWeightsThatMakeItsClassesCountTheSame) {
  const std::vector<double> weights = class_weights(read_folder(directory_.path()).files);
  EXPECT_DOUBLE_EQ(weights[0] * 10, 20.0);
  EXPECT_DOUBLE_EQ(weights[1] * 30, 20.0);
}

}  // namespace
