// SPDX-License-Identifier: Apache-2.0
#include "node/caches.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "node/processors.hpp"

namespace kolo::internal::node {
namespace {

/// A host whose processors share second-level caches in pairs: 0 with 1, and 2 with 3.
class CachesTest : public testing::Test {
 protected:
  [[nodiscard]] Caches of(const std::vector<int>& processors) const {
    return host_.caches_of(processors);
  }

  static constexpr std::int64_t size = 512 << 10;

 private:
  const Processors host_ = Processors::synthetic("package:1 l2:2(size=524288) core:2 pu:1");
};

std::int64_t share(const std::vector<Caches>& ranks) { return cache_share(ranks); }

TEST_F(CachesTest, ARankHasAtMostOneCache) {
  EXPECT_EQ(share({of({0})}), size);
  EXPECT_EQ(share({of({0, 1, 2, 3})}), size);
  EXPECT_EQ(share({of({0}), of({2})}), size);
}

TEST_F(CachesTest, RanksOnProcessorsOfOneCacheShareIt) {
  EXPECT_EQ(share({of({0}), of({1})}), size / 2);
  EXPECT_EQ(share({of({0}), of({1}), of({2}), of({3})}), size / 2);
  EXPECT_EQ(share(std::vector(8, of({0, 1, 2, 3}))), size / 4);
}

TEST_F(CachesTest, WhereNothingIsKnownEveryProcessorHasAnUsualCache) {
  const Caches unknown = Processors::synthetic("nonsense").caches_of(std::vector{0, 1});
  EXPECT_EQ(unknown.bytes, 0);
  EXPECT_EQ(share({unknown, unknown}), std::int64_t{1} << 20);
  EXPECT_EQ(share({unknown, unknown, unknown, unknown}), std::int64_t{1} << 19);
  EXPECT_EQ(share({Caches{}, Caches{}}), std::int64_t{1} << 19);
}

TEST_F(CachesTest, AProcessorThatIsNotDescribedHasACacheOfItsOwn) {
  EXPECT_EQ(of({70}).bytes, 0);
  EXPECT_EQ(share({of({0, 70}), of({1, 71})}), size);
}

TEST_F(CachesTest, ProcessorsBeyondTheBitsAreLeftOut) {
  EXPECT_EQ(share({of({Caches::max_processors, 70})}), std::int64_t{1} << 20);
}

}  // namespace
}  // namespace kolo::internal::node
