// SPDX-License-Identifier: Apache-2.0
#include "dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "temporary_directory.hpp"

namespace {

using namespace cifar10;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// An image whose pixel number p has the value p mod 83 in its red plane, and 83 and 166 more in the
// green and the blue one.
std::string record(char label) {
  std::string bytes(1, label);
  for (std::size_t plane = 0; plane < channels; ++plane) {
    for (std::size_t p = 0; p < side * side; ++p) {
      bytes += static_cast<char>(p % 83 + 83 * plane);
    }
  }
  return bytes;
}

std::string error_of(const std::filesystem::path& file, std::size_t records = records_per_file) {
  Dataset dataset;
  try {
    append_file(dataset, file, records);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST(AppendFile, GivesLabelsAndPixelsWithTheirChannelsSideBySide) {
  const TemporaryDirectory directory;
  Dataset dataset;
  append_file(dataset, directory.write("a.bin", record(7) + record(0)), 2);
  append_file(dataset, directory.write("b.bin", record(9)), 1);

  ASSERT_EQ(dataset.size(), 3U);
  EXPECT_THAT(dataset.labels, ElementsAre(7, 0, 9));
  ASSERT_EQ(dataset.pixels.size(), 3 * image_bytes);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto image = dataset.image(i);
    for (std::size_t p = 0; p < side * side; ++p) {
      ASSERT_EQ(image[3 * p], p % 83);
      ASSERT_EQ(image[3 * p + 1], p % 83 + 83);
      ASSERT_EQ(image[3 * p + 2], p % 83 + 166);
    }
  }
}

TEST(AppendFile, SaysWhichFileIsTruncatedAndBothSizes) {
  const TemporaryDirectory directory;
  const auto file = directory.write("cut.bin", record(1) + record(2).substr(0, 3000));
  EXPECT_THAT(error_of(file), AllOf(HasSubstr(file.string()), HasSubstr("truncated"),
                                    HasSubstr("30730000"), HasSubstr("found 6073 bytes")));
}

TEST(AppendFile, NoticesATruncationBetweenTwoRecords) {
  const TemporaryDirectory directory;
  const auto file = directory.write("short.bin", record(1) + record(2));
  EXPECT_THAT(error_of(file, 3), HasSubstr("expected 9219 bytes (3 records of 3073), found 6146"));
}

TEST(AppendFile, RefusesAnEmptyFile) {
  const TemporaryDirectory directory;
  const auto file = directory.write("empty.bin", "");
  EXPECT_THAT(error_of(file), AllOf(HasSubstr(file.string()), HasSubstr("found 0 bytes")));
}

TEST(AppendFile, RefusesALabelAboveNine) {
  const TemporaryDirectory directory;
  const auto file = directory.write("label.bin", record(9) + record(10));
  EXPECT_THAT(error_of(file, 2),
              AllOf(HasSubstr(file.string()), HasSubstr("record 1"), HasSubstr("label 10")));
}

TEST(AppendFile, SaysWhichFileIsMissing) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "missing.bin";
  EXPECT_THAT(error_of(file),
              AllOf(HasSubstr(file.string()), HasSubstr("No such file"), HasSubstr("30730000")));
}

void write_data_set(const TemporaryDirectory& directory, const std::filesystem::path& folder) {
  for (char batch = 1; batch <= 5; ++batch) {
    directory.write(folder / ("data_batch_" + std::to_string(batch) + ".bin"), record(batch));
  }
  directory.write(folder / "test_batch.bin", record(6));
}

TEST(ReadCifar10, TakesTheFilesInOrder) {
  const TemporaryDirectory directory;
  write_data_set(directory, ".");
  const Data data = read_cifar10(directory.path(), 1);
  EXPECT_THAT(data.train.labels, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(data.test.labels, ElementsAre(6));
}

TEST(ReadCifar10, FindsThemInTheArchivesDirectory) {
  const TemporaryDirectory directory;
  write_data_set(directory, "cifar-10-batches-bin");
  EXPECT_EQ(read_cifar10(directory.path(), 1).train.size(), 5U);
}

TEST(ReadCifar10, RefusesAMissingDirectoryAndAMissingFile) {
  const TemporaryDirectory directory;
  EXPECT_THROW((void)read_cifar10(directory.path() / "nowhere"), std::runtime_error);
  write_data_set(directory, ".");
  std::filesystem::remove(directory.path() / "test_batch.bin");
  EXPECT_THROW((void)read_cifar10(directory.path(), 1), std::runtime_error);
}

TEST(Dataset, KeepsTheFirstImages) {
  const TemporaryDirectory directory;
  write_data_set(directory, ".");
  Data data = read_cifar10(directory.path(), 1);
  data.train.keep_first(100);
  EXPECT_EQ(data.train.size(), 5U);
  data.train.keep_first(2);
  EXPECT_THAT(data.train.labels, ElementsAre(1, 2));
  EXPECT_EQ(data.train.pixels.size(), 2 * image_bytes);
}

}  // namespace
