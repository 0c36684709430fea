// Every target's function over its seeds, over what is in the corpus, and over both damaged.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "target.hpp"

namespace kolo::fuzz {
namespace {

namespace fs = std::filesystem;

class Corpus : public testing::TestWithParam<Target> {
 protected:
  [[nodiscard]] static std::vector<Seed> files() {
    std::vector<Seed> files;
    for (const auto& entry : fs::directory_iterator(fs::path(KOLO_FUZZ_CORPUS) / GetParam().name)) {
      std::ifstream file(entry.path(), std::ios::binary);
      files.push_back(
          {entry.path().filename().string(), {std::istreambuf_iterator<char>(file), {}}});
    }
    return files;
  }
};

TEST_P(Corpus, SeedsAreAccepted) {
  for (const Seed& seed : GetParam().seeds()) {
    EXPECT_LE(seed.bytes.size(), GetParam().most_bytes) << seed.name;
    EXPECT_TRUE(GetParam().run(as_input(seed.bytes))) << seed.name;
  }
}

TEST_P(Corpus, FilesKeepThePromises) {
  std::size_t accepted = 0;
  for (const Seed& file : files()) {
    SCOPED_TRACE(file.name);
    if (GetParam().run(as_input(file.bytes))) ++accepted;
  }
  // Each seed is a file. A seed that has become another leaves its file behind, and both count.
  EXPECT_GE(accepted, GetParam().seeds().size());
}

TEST_P(Corpus, DamagedOnesKeepThePromises) {
  constexpr unsigned seed = 1;
  constexpr int rounds = 200;
  std::mt19937 random(seed);
  int refused = 0;
  for (const Seed& file : files()) {
    SCOPED_TRACE(file.name + " damaged, random seed " + std::to_string(seed));
    for (int round = 0; round < rounds; ++round) {
      std::string bytes = file.bytes;
      for (auto changes = 1 + random() % 3; changes > 0 && !bytes.empty(); --changes)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      if (round % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
      if (!GetParam().run(as_input(bytes))) ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, Corpus, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace kolo::fuzz
