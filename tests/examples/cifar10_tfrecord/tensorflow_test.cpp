// SPDX-License-Identifier: Apache-2.0
// Files written by TensorFlow, if KOLO_TEST_DATA names a folder that has them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "example.hpp"
#include "images.hpp"
#include "record_file.hpp"

namespace {

namespace fs = std::filesystem;
using namespace tfrecord;

class FilesOfTensorFlow : public testing::Test {
 protected:
  fs::path find(const std::string& name) const {
    const char* data = std::getenv("KOLO_TEST_DATA");
    if (data == nullptr || !fs::exists(fs::path(data) / name)) return {};
    return fs::path(data) / name;
  }

  // Record i has the floats 10 i to 10 i + 9, ten times them as integers, and a text.
  static void expect_the_four_examples(const fs::path& file) {
    RecordReader reader(file);
    for (int i = 0; i < 4; ++i) {
      const auto record = reader.next();
      ASSERT_TRUE(record);
      const Example example = parse_example(*record);
      Floats floats;
      Integers integers;
      for (int k = 10 * i; k < 10 * i + 10; ++k) {
        floats.push_back(static_cast<float>(k));
        integers.push_back(10 * k);
      }
      EXPECT_EQ(example,
                (Example{{"x_byte", Bytes{"test str"}}, {"x_float", floats}, {"x_int", integers}}));
    }
    EXPECT_FALSE(reader.next());
  }
};

TEST_F(FilesOfTensorFlow, WithExamplesAreRead) {
  const fs::path file = find("tfrecord-by-tensorflow/example.tfrecord");
  if (file.empty()) GTEST_SKIP() << "KOLO_TEST_DATA has no such file";
  expect_the_four_examples(file);
}

TEST_F(FilesOfTensorFlow, WithSequenceExamplesAreReadForTheirContext) {
  const fs::path file = find("tfrecord-by-tensorflow/sequence_example.tfrecord");
  if (file.empty()) GTEST_SKIP() << "KOLO_TEST_DATA has no such file";
  expect_the_four_examples(file);
}

TEST_F(FilesOfTensorFlow, WithCifar10AreRead) {
  const fs::path folder = find("cifar-10-tfrecords");
  if (folder.empty()) GTEST_SKIP() << "KOLO_TEST_DATA has no such folder";
  EXPECT_EQ(read_images(folder / "train").size(), 2000U);
  EXPECT_EQ(read_images(folder / "validation").size(), 500U);
  EXPECT_EQ(read_images(folder / "eval").size(), 500U);
}

}  // namespace
