// SPDX-License-Identifier: Apache-2.0
#include "record_file.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "bytes.hpp"
#include "temporary_directory.hpp"

namespace {

using namespace tfrecord;

// RFC 3720, B.4, and the usual check value.
TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Crc32c, IsMaskedByRotationAndAddition) {
  EXPECT_EQ(masked_crc32c(""), 0xA282EAD8U);
  // 0xE3069283 rotated right by 15 bits is 0x2507C60D.
  EXPECT_EQ(masked_crc32c("123456789"), 0x2507C60DU + 0xA282EAD8U);
}

const std::vector<std::string>& records() {
  static const std::vector<std::string> list = {"first", "", std::string(40, 'x')};
  return list;
}

// Where record `index` begins: each has 16 bytes beside its own.
std::size_t start_of(std::size_t index) {
  std::size_t start = 0;
  for (std::size_t i = 0; i < index; ++i) start += 16 + records()[i].size();
  return start;
}

std::size_t record_at(std::size_t offset) {
  std::size_t index = 0;
  while (start_of(index + 1) <= offset) ++index;
  return index;
}

class RecordFile : public testing::Test {
 protected:
  std::string content() const {
    RecordWriter writer(directory_.path() / "good");
    for (const std::string& record : records()) writer.write(record);
    writer.close();
    std::ifstream stream(directory_.path() / "good", std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  // Reads a file of these bytes to its end, or to the error.
  std::optional<RecordError> read(const std::string& bytes) {
    RecordReader reader(directory_.write("tried.tfrecords", bytes));
    got_.clear();
    try {
      while (auto record = reader.next()) got_.push_back(*std::move(record));
      return std::nullopt;
    } catch (const RecordError& error) {
      return error;
    }
  }

  std::vector<std::string> first(std::size_t count) const {
    return {records().begin(), records().begin() + static_cast<std::ptrdiff_t>(count)};
  }

  TemporaryDirectory directory_;
  std::vector<std::string> got_;
};

TEST_F(RecordFile, GivesBackWhatWasWritten) {
  const std::string bytes = content();
  EXPECT_EQ(bytes.size(), start_of(records().size()));
  EXPECT_FALSE(read(bytes));
  EXPECT_EQ(got_, records());
}

// The length of 5, its checksum, the record and its checksum.
TEST_F(RecordFile, HasTheDocumentedLayout) {
  const std::string bytes = content();
  EXPECT_EQ(bytes.substr(0, 8), std::string("\5\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(12, 5), "first");
  const std::uint32_t crc = masked_crc32c("first");
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<unsigned char>(bytes[17 + i]), crc >> 8 * i & 0xFF);
  }
}

TEST_F(RecordFile, FindsEveryFlippedBitAndNamesFileAndOffset) {
  const std::string good = content();
  for (std::size_t offset = 0; offset < good.size(); ++offset) {
    const std::size_t index = record_at(offset);
    const std::size_t start = start_of(index);
    const std::size_t wrong_part = offset < start + 12 ? start : start + 12;
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[offset] = static_cast<char>(bad[offset] ^ 1 << bit);
      const auto error = read(bad);
      ASSERT_TRUE(error) << "bit " << bit << " of byte " << offset;
      EXPECT_EQ(error->fault(), Fault::corrupt);
      EXPECT_EQ(error->offset(), wrong_part) << "bit " << bit << " of byte " << offset;
      const std::string message = error->what();
      EXPECT_NE(message.find("tried.tfrecords' is corrupt at offset " + std::to_string(wrong_part)),
                std::string::npos)
          << message;
      EXPECT_EQ(got_, first(index));
    }
  }
}

TEST_F(RecordFile, TellsAFileThatWasCutOffFromACorruptOne) {
  const std::string good = content();
  for (std::size_t size = 0; size < good.size(); ++size) {
    const std::size_t index = record_at(size);
    const auto error = read(good.substr(0, size));
    EXPECT_EQ(got_, first(index)) << size;
    if (size == start_of(index)) {
      EXPECT_FALSE(error) << "a file of whole records: " << size;
      continue;
    }
    ASSERT_TRUE(error) << size;
    EXPECT_EQ(error->fault(), Fault::truncated) << size;
    EXPECT_EQ(error->offset(), start_of(index)) << size;
  }
}

TEST_F(RecordFile, SaysThatAFileIsMissing) {
  try {
    RecordReader reader(directory_.path() / "nothing");
    FAIL() << "it was opened";
  } catch (const RecordError& error) {
    EXPECT_EQ(error.fault(), Fault::missing);
    EXPECT_NE(std::string(error.what()).find("nothing"), std::string::npos);
  }
}

TEST_F(RecordFile, CannotBeWrittenWhereThereIsNoFolder) {
  EXPECT_THROW(RecordWriter(directory_.path() / "no" / "file"), std::runtime_error);
}

}  // namespace
