// SPDX-License-Identifier: Apache-2.0
// Runs every target over its seeds, over the inputs in corpus/, and over damaged copies of both.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

namespace fs = std::filesystem;

// Inputs that fuzzing has found, kept as regression tests. A target may have none.
std::vector<Seed> found_by(const Target& target) {
  std::vector<Seed> inputs;
  const fs::path folder = fs::path(KOLO_FUZZ_CORPUS) / target.name;
  if (!fs::exists(folder)) return inputs;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs.push_back(
        {entry.path().filename().string(), {std::istreambuf_iterator<char>(file), {}}});
  }
  return inputs;
}

class Corpus : public testing::TestWithParam<Target> {};

TEST_P(Corpus, SeedsAreAccepted) {
  const std::vector<Seed> seeds = GetParam().seeds();
  EXPECT_FALSE(seeds.empty());
  for (const Seed& seed : seeds) {
    EXPECT_LE(seed.bytes.size(), GetParam().max_bytes) << seed.name;
    EXPECT_TRUE(GetParam().run(as_input(seed.bytes))) << seed.name;
  }
}

TEST_P(Corpus, FoundInputsKeepThePromises) {
  for (const Seed& input : found_by(GetParam())) {
    SCOPED_TRACE(input.name);
    EXPECT_NO_THROW(static_cast<void>(GetParam().run(as_input(input.bytes))));
  }
}

TEST_P(Corpus, DamagedInputsKeepThePromises) {
  constexpr unsigned seed = 1;
  constexpr int rounds = 200;
  std::mt19937 random(seed);
  std::vector<Seed> inputs = GetParam().seeds();
  for (Seed& input : found_by(GetParam())) inputs.push_back(std::move(input));
  int refused = 0;
  for (const Seed& input : inputs) {
    SCOPED_TRACE(input.name + " damaged, random seed " + std::to_string(seed));
    for (int round = 0; round < rounds; ++round) {
      std::string bytes = input.bytes;
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

// Inputs of a target that was renamed or removed would never run again.
TEST(CorpusFolders, AreNamedAfterTargets) {
  std::size_t inputs = 0;
  for (const auto& folder : fs::directory_iterator(KOLO_FUZZ_CORPUS)) {
    const Target* target = find_target(folder.path().filename().string());
    ASSERT_NE(target, nullptr) << folder.path();
    inputs += found_by(*target).size();
  }
  EXPECT_GT(inputs, 0U);
}

}  // namespace
}  // namespace kolo::internal::fuzz
