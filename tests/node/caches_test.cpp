// SPDX-License-Identifier: Apache-2.0
#include "node/caches.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace kolo::internal::node {
namespace {

/// A host whose processors share second-level caches in pairs: 0 with 2, and 1 with 3.
class CachesTest : public testing::Test {
 protected:
  CachesTest() : root_(testing::TempDir() + "kolo_caches_" + std::to_string(::getpid())) {
    for (int processor = 0; processor < 4; ++processor) {
      write(processor, "index0/level", "1");
      write(processor, "index0/size", "48K");
      write(processor, "index1/level", "2");
      write(processor, "index1/size", "512K");
      write(processor, "index1/shared_cpu_list", processor % 2 == 0 ? "0,2" : "1,3");
    }
  }
  ~CachesTest() override { std::filesystem::remove_all(root_); }

  [[nodiscard]] Caches of(const std::vector<int>& processors) const {
    return caches_of(processors, root_);
  }

  static constexpr std::int64_t size = 512 << 10;

 private:
  void write(int processor, const std::string& name, const char* content) const {
    const std::filesystem::path path =
        root_ + "/sys/devices/system/cpu/cpu" + std::to_string(processor) + "/cache/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content << '\n';
  }

  std::string root_;
};

std::int64_t share(const std::vector<Caches>& ranks) { return cache_share(ranks); }

TEST_F(CachesTest, ARankHasAtMostOneCache) {
  EXPECT_EQ(share({of({0})}), size);
  EXPECT_EQ(share({of({0, 1, 2, 3})}), size);
  EXPECT_EQ(share({of({0}), of({1})}), size);
}

TEST_F(CachesTest, RanksOnProcessorsOfOneCacheShareIt) {
  EXPECT_EQ(share({of({0}), of({2})}), size / 2);
  EXPECT_EQ(share({of({0}), of({2}), of({1}), of({3})}), size / 2);
  EXPECT_EQ(share(std::vector(8, of({0, 1, 2, 3}))), size / 4);
}

TEST_F(CachesTest, WhereNothingIsKnownEveryProcessorHasAnUsualCache) {
  const Caches unknown = caches_of(std::vector{0, 1}, "/nowhere");
  EXPECT_EQ(unknown.bytes, 0);
  EXPECT_EQ(share({unknown, unknown}), std::int64_t{1} << 20);
  EXPECT_EQ(share({unknown, unknown, unknown, unknown}), std::int64_t{1} << 19);
  EXPECT_EQ(share({Caches{}, Caches{}}), std::int64_t{1} << 19);
}

TEST_F(CachesTest, ProcessorsBeyondTheBitsAreLeftOut) {
  EXPECT_EQ(share({caches_of(std::vector{Caches::max_processors, 70}, "/nowhere")}),
            std::int64_t{1} << 20);
}

TEST_F(CachesTest, ThisProcessMayUseAProcessor) { EXPECT_FALSE(own_processors().empty()); }

}  // namespace
}  // namespace kolo::internal::node
