// SPDX-License-Identifier: Apache-2.0
#include "images.hpp"

#include <gtest/gtest.h>

#include <string>

#include "example.hpp"
#include "record_file.hpp"
#include "stand_in.hpp"
#include "temporary_directory.hpp"

namespace {

using namespace tfrecord;

class Images : public testing::Test {
 protected:
  std::filesystem::path write(const Example& example) const {
    RecordWriter writer(directory_.path() / "one.tfrecords");
    writer.write(serialize_example(example));
    writer.close();
    return directory_.path() / "one.tfrecords";
  }

  void expect_refused(const Example& example, const std::string& message) const {
    cifar10::Dataset dataset;
    try {
      append_images(dataset, write(example));
      FAIL() << "it was read";
    } catch (const RecordError& error) {
      EXPECT_EQ(error.fault(), Fault::corrupt);
      EXPECT_EQ(error.offset(), 12U);
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }

  TemporaryDirectory directory_;
};

TEST_F(Images, ComeBackInTheOrderOfTheFilesNames) {
  const cifar10::Dataset made = cifar10::make_stand_in(30, 1).train;
  write_images(directory_.path() / "b.tfrecords", made, 20, 10);
  write_images(directory_.path() / "a.tfrecords", made, 0, 20);
  directory_.write("readme.txt", "not a record");
  const cifar10::Dataset read = read_images(directory_.path());
  EXPECT_EQ(read.labels, made.labels);
  EXPECT_EQ(read.pixels, made.pixels);
}

// Byte i of the file's planes is (i * 7) % 256; pixel p of channel c is byte c * 1024 + p.
TEST_F(Images, LieInPlanesInTheFile) {
  std::string planes(3072, '\0');
  for (std::size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<char>(i * 7 % 256);
  cifar10::Dataset dataset;
  append_images(dataset, write({{"image", Bytes{planes}}, {"label", Integers{9}}}));
  ASSERT_EQ(dataset.size(), 1U);
  EXPECT_EQ(dataset.labels[0], 9);
  for (std::size_t pixel = 0; pixel < 1024; ++pixel) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      ASSERT_EQ(dataset.pixels[pixel * 3 + channel], (channel * 1024 + pixel) * 7 % 256);
    }
  }
}

TEST_F(Images, MustHaveTheRightFeatures) {
  const std::string planes(3072, 'x');
  const std::string no_image = "has no 'image' of 3072 bytes",
                    no_label = "has no 'label' from 0 to 9";
  expect_refused({{"label", Integers{1}}}, no_image);
  expect_refused({{"image", Bytes{"short"}}, {"label", Integers{1}}}, no_image);
  expect_refused({{"image", Integers{1}}, {"label", Integers{1}}}, no_image);
  expect_refused({{"image", Bytes{planes}}}, no_label);
  expect_refused({{"image", Bytes{planes}}, {"label", Integers{10}}}, no_label);
  expect_refused({{"image", Bytes{planes}}, {"label", Integers{-1}}}, no_label);
  expect_refused({{"image", Bytes{planes}}, {"label", Integers{1, 2}}}, no_label);
}

TEST_F(Images, OfAFolderWithoutFilesAreMissed) {
  EXPECT_THROW((void)read_images(directory_.path()), std::runtime_error);
  EXPECT_THROW((void)read_images(directory_.path() / "nowhere"), std::runtime_error);
}

}  // namespace
