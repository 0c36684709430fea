// SPDX-License-Identifier: Apache-2.0
#include "sizes.hpp"

#include <gmock/gmock.h>

#include "names.hpp"

namespace perf {
namespace {

using testing::ElementsAre;

TEST(Sizes, AreBytesInPowersOf1024) {
  EXPECT_EQ(parse_bytes("--sizes", "4"), 4);
  EXPECT_EQ(parse_bytes("--sizes", "7B"), 7);
  EXPECT_EQ(parse_bytes("--sizes", "1K"), 1024);
  EXPECT_EQ(parse_bytes("--sizes", "3k"), 3 * 1024);
  EXPECT_EQ(parse_bytes("--sizes", "64KB"), 64 * 1024);
  EXPECT_EQ(parse_bytes("--sizes", "16MiB"), 16 << 20);
  EXPECT_EQ(parse_bytes("--sizes", "3G"), std::int64_t{3} << 30);
}

TEST(Sizes, RefuseWhatIsNone) {
  for (const char* text :
       {"", "K", "-4", "0", "4.5K", "4X", "4KX", "4 K", "1025G", "99999999999999999999"})
    EXPECT_THROW(static_cast<void>(parse_bytes("--sizes", text)), UsageError) << text;
}

TEST(Sizes, MakeSeries) {
  EXPECT_THAT(geometric_sizes(4, 64, 4), ElementsAre(4, 16, 64));
  EXPECT_THAT(geometric_sizes(4, 63, 4), ElementsAre(4, 16));
  EXPECT_THAT(geometric_sizes(5, 5, 2), ElementsAre(5));
  EXPECT_THROW(static_cast<void>(geometric_sizes(8, 4, 2)), UsageError);
  EXPECT_THROW(static_cast<void>(geometric_sizes(4, 8, 1)), UsageError);
}

}  // namespace
}  // namespace perf
