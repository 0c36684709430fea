// SPDX-License-Identifier: Apache-2.0
#include "training/state_text.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

TEST(StateText, DoublesComeBackBitForBit) {
  using Limits = std::numeric_limits<double>;
  for (const double number :
       {0.0, -0.0, 1.0 / 3.0, -1e300, Limits::denorm_min(), Limits::max(), Limits::infinity()}) {
    StateReader reader("kind.1", StateWriter("kind.1").add(number).text());
    EXPECT_EQ(std::bit_cast<std::uint64_t>(reader.real()), std::bit_cast<std::uint64_t>(number));
    reader.end();
  }
  StateReader reader("kind.1", StateWriter("kind.1").add(Limits::quiet_NaN()).text());
  EXPECT_TRUE(std::isnan(reader.real()));
}

TEST(StateText, DoublesAreWrittenAsPrintfDoesInTheLocaleC) {
  EXPECT_EQ(StateWriter("kind.1").add(1.5).add(-0.1).add(0.0).add(-HUGE_VAL).text(),
            "kind.1 0x1.8p+0 -0x1.999999999999ap-4 0x0p+0 -inf");
  StateReader reader("kind.1", "kind.1 0.5 -2e3 -0x.8p1");  // decimals are read, too
  EXPECT_EQ(reader.real(), 0.5);
  EXPECT_EQ(reader.real(), -2000.0);
  EXPECT_EQ(reader.real(), -1.0);
  for (const char* const wrong : {"--1", "0x-1", "+1", "1,5", "0x", "-", "0x1.8p+0x"})
    EXPECT_THROW((void)StateReader("kind.1", std::string("kind.1 ") + wrong).real(),
                 InvalidArgument)
        << wrong;
}

TEST(StateText, IntegersOfAllSizes) {
  using Signed = std::numeric_limits<std::int64_t>;
  const std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  StateReader reader(
      "kind.1", StateWriter("kind.1").add(Signed::min()).add(Signed::max()).add(largest).text());
  EXPECT_EQ(reader.integer(), Signed::min());
  EXPECT_EQ(reader.integer(), Signed::max());
  EXPECT_EQ(reader.natural(), largest);
  reader.end();
}

TEST(StateText, RefusesAnythingElse) {
  EXPECT_THROW(StateReader("kind.1", ""), InvalidArgument);
  EXPECT_THROW(StateReader("kind.1", "kind.2 1"), InvalidArgument);
  StateReader reader("kind.1", "kind.1 1.5 -1 word");
  EXPECT_THROW((void)reader.integer(), InvalidArgument);
  EXPECT_THROW((void)reader.natural(), InvalidArgument);
  EXPECT_THROW((void)reader.real(), InvalidArgument);
  EXPECT_THROW((void)reader.real(), InvalidArgument);
  StateReader more("kind.1", "kind.1 1");
  EXPECT_THROW(more.end(), InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal
