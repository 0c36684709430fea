// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace {

TEST(Windows, GiveEachTokenAndTheNextOne) {
  const std::string text = "abcdefghij";
  const gpt::Windows windows(text, 3);
  ASSERT_EQ(windows.count(), 3);
  const std::vector<std::int64_t> chosen = {2, 0};
  const gpt::Batch batch = windows.batch(chosen);
  EXPECT_EQ(batch.sequences, 2U);
  EXPECT_THAT(batch.inputs, ::testing::ElementsAre('g', 'h', 'i', 'a', 'b', 'c'));
  EXPECT_THAT(batch.targets, ::testing::ElementsAre('h', 'i', 'j', 'b', 'c', 'd'));
}

TEST(Windows, OfTextsThatAreTooShort) {
  EXPECT_EQ(gpt::Windows(std::string("abc"), 3).count(), 0);
  EXPECT_EQ(gpt::Windows(std::string(), 3).count(), 0);
  EXPECT_EQ(gpt::Windows(std::string("abcd"), 3).count(), 1);
}

TEST(GenerateText, IsTheSameForASeedAndAsLongAsAskedFor) {
  const std::string text = gpt::generate_text(1000, 1);
  EXPECT_GE(text.size(), 1000U);
  EXPECT_LT(text.size(), 1100U);
  EXPECT_EQ(text, gpt::generate_text(1000, 1));
  EXPECT_NE(text, gpt::generate_text(1000, 2));
  EXPECT_EQ(text.back(), '\n');
}

TEST(ReadText, NamesTheFileThatIsNotThere) {
  try {
    (void)gpt::read_text("/nowhere/text");
    FAIL() << "it was read";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'/nowhere/text'"));
  }
}

}  // namespace
