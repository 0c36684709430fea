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

// Long enough to exhaust the stack of a function that calls itself for each level, and the patience
// of one that takes a time that grows with the square.
TEST_P(Corpus, LongAndDeeplyNestedInputsKeepThePromises) {
  constexpr std::size_t long_enough = 1'000'000;
  const auto repeated = [](const std::string& part, std::size_t bytes) {
    std::string all;
    while (all.size() < bytes) all += part;
    return all;
  };
  std::vector<std::string> inputs;
  for (const std::string& part : {std::string(1, '\0'), std::string("\xff"), std::string("7"),
                                  std::string("["), std::string("{\"a\":"), std::string("[{\"a\":"),
                                  std::string("("), std::string("a=\""), std::string("a,")}) {
    inputs.push_back(repeated(part, long_enough));
    // A header of safetensors with as many bytes of JSON.
    std::string text = repeated(part, long_enough);
    text.resize(text.size() / 8 * 8);
    const std::uint64_t bytes = text.size();
    inputs.push_back(std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes) + text);
  }
  inputs.push_back(repeated("[", 10'000) + repeated("]", 10'000));
  for (const Seed& seed : GetParam().seeds()) {
    if (seed.bytes.empty()) continue;
    inputs.push_back(repeated(seed.bytes, long_enough));
    inputs.push_back(seed.bytes + repeated("[", long_enough));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_NO_THROW(static_cast<void>(GetParam().run(as_input(inputs[i]))));
  }
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
