// SPDX-License-Identifier: Apache-2.0
#include "example.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <random>
#include <string>

namespace {

using namespace tfrecord;
using namespace std::string_literals;

// Field 1 of `bytes` bytes.
std::string wrapped(const std::string& bytes) {
  return "\x0A"s + static_cast<char>(bytes.size()) + bytes;
}

// An example with the feature "n" of these bytes.
std::string with_feature(const std::string& feature) {
  const std::string entry = wrapped("n") + "\x12"s + static_cast<char>(feature.size()) + feature;
  return wrapped(wrapped(entry));
}

TEST(Example, ReadsThePublishedEncoding) {
  EXPECT_EQ(parse_example(with_feature("\x0A\x05\x0A\x03"
                                       "abc"s)),
            (Example{{"n", Bytes{"abc"}}}));
  EXPECT_EQ(parse_example(with_feature("\x12\x06\x0A\x04\0\0\x80\x3F"s)),
            (Example{{"n", Floats{1.0F}}}));
  // 150 is 96 01 in protobuf's documentation; -1 takes ten bytes.
  EXPECT_EQ(
      parse_example(with_feature("\x1A\x0E\x0A\x0C\x96\x01"s + std::string(9, '\xFF') + "\1")),
      (Example{{"n", Integers{150, -1}}}));
}

TEST(Example, ReadsNumbersThatAreNotPacked) {
  EXPECT_EQ(parse_example(with_feature("\x12\x0A\x0D\0\0\x80\x3F\x0D\0\0\0\x40"s)),
            (Example{{"n", Floats{1.0F, 2.0F}}}));
  EXPECT_EQ(parse_example(with_feature("\x1A\x05\x08\x07\x08\x96\x01"s)),
            (Example{{"n", Integers{7, 150}}}));
}

TEST(Example, PassesOverWhatItDoesNotKnow) {
  // Fields 9 of each wire type, before and after.
  const std::string unknown = "\x48\x96\x01\x4A\x02zz\x4D\1\2\3\4\x49\1\2\3\4\5\6\7\x08"s;
  EXPECT_EQ(parse_example(unknown + with_feature("\x1A\x03\x0A\x01\x05"s) + unknown),
            (Example{{"n", Integers{5}}}));
}

TEST(Example, OfNoBytesHasNoFeatures) { EXPECT_TRUE(parse_example("").empty()); }

TEST(Example, IsWrittenAsTensorFlowDoes) {
  EXPECT_EQ(serialize_example({{"n", Integers{150}}}), with_feature("\x1A\x04\x0A\x02\x96\x01"s));
  EXPECT_EQ(serialize_example({{"n", Bytes{"abc"}}}), with_feature("\x0A\x05\x0A\x03"
                                                                   "abc"s));
  EXPECT_EQ(serialize_example({{"n", Integers{}}}), with_feature("\x1A\0"s));
}

Example random_example(std::mt19937& random) {
  const auto draw = [&](unsigned int end) { return static_cast<unsigned int>(random() % end); };
  Example example;
  for (unsigned int count = draw(5); count-- > 0;) {
    Feature& feature = example["feature " + std::to_string(draw(100))];
    const unsigned int values = draw(200);
    const unsigned int kind = draw(3);
    if (kind == 0) feature = Bytes(values, std::string(draw(300), static_cast<char>(draw(256))));
    if (kind == 1) feature = Floats(values, static_cast<float>(draw(1000)) - 500.0F);
    if (kind == 2) {
      Integers list;
      for (unsigned int i = 0; i < values; ++i) {
        list.push_back(static_cast<std::int64_t>(std::uint64_t{random()} << 32 | random()));
      }
      list.push_back(std::numeric_limits<std::int64_t>::min());
      feature = list;
    }
  }
  return example;
}

TEST(Example, ComesBackFromItsBytes) {
  const unsigned int seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    const Example example = random_example(random);
    ASSERT_EQ(parse_example(serialize_example(example)), example);
  }
}

// No byte outside the message is read: the copy ends where its memory ends.
TEST(Example, OfDamagedBytesIsReadOrRefused) {
  const unsigned int seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = serialize_example(random_example(random));
    if (bytes.empty()) continue;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    bytes.shrink_to_fit();
    try {
      (void)parse_example(bytes);
    } catch (const ExampleError& error) {
      ASSERT_LE(error.offset(), bytes.size());
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Example, SaysWhichFieldCannotBeRead) {
  const auto offset_of = [](const std::string& bytes) -> std::int64_t {
    try {
      (void)parse_example(bytes);
      return -1;
    } catch (const ExampleError& error) {
      return static_cast<std::int64_t>(error.offset());
    }
  };
  EXPECT_EQ(offset_of("\x0A\x05"
                      "abc"s),
            0);                                                // five bytes should follow
  EXPECT_EQ(offset_of("\x48\x07\x0B"s), 2);                    // a group: not of this protobuf
  EXPECT_EQ(offset_of("\x08"s + std::string(10, '\xFF')), 0);  // a number without an end
  EXPECT_EQ(offset_of(with_feature("\x12\x05\x0A\x03"
                                   "abc"s)),
            11);  // floats of three bytes: the field within four messages
}

}  // namespace
