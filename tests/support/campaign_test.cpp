// SPDX-License-Identifier: Apache-2.0
#include "support/campaign.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

namespace kolo::internal::campaign {
namespace {

Options read(std::vector<std::string> words, CommandLine command_line = {}) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return read_options(static_cast<int>(arguments.size()), arguments.data(), 7, 3,
                      std::move(command_line));
}

TEST(CampaignOptions, ALimitReplacesTheDefaultNumberOfRuns) {
  EXPECT_EQ(read({"program"}).seed, 7U);
  EXPECT_EQ(read({"program"}).runs, 3U);
  EXPECT_EQ(read({"program", "--runs", "5", "--seed", "12345678901234"}).runs, 5U);
  EXPECT_EQ(read({"program", "--seed", "12345678901234"}).seed, 12345678901234U);
  EXPECT_EQ(read({"program", "--seconds", "0.5"}).seconds, 0.5);
  EXPECT_GT(read({"program", "--seconds", "0.5"}).runs, 1'000'000U);
}

TEST(CampaignOptions, AProgramAddsItsOwn) {
  bool print = false;
  std::vector<int> ranks;
  std::string name;
  const CommandLine more =
      CommandLine().add_flag("--print", print).add("--ranks", ranks).add("--name", name);
  EXPECT_EQ(
      read({"program", "--ranks", "4,16", "--print", "--name", "a b", "--runs", "2"}, more).runs,
      2U);
  EXPECT_TRUE(print);
  EXPECT_EQ(ranks, (std::vector{4, 16}));
  EXPECT_EQ(name, "a b");
}

TEST(CampaignOptions, RefusesMistakes) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--run", "1"}, {"--runs"}, {"--runs", "many"}, {"--runs", "1x"}}) {
    std::vector<std::string> all{"program"};
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_THROW(static_cast<void>(read(all)), std::invalid_argument);
  }
}

TEST(Campaign, RunsEachSeedOnceAndEndsAfterFailures) {
  std::map<std::uint64_t, std::atomic<int>> runs;
  for (std::uint64_t seed = 5; seed < 105; ++seed) runs[seed] = 0;
  const auto run = [&](std::uint64_t seed) {
    ++runs.at(seed);
    return std::string(seed % 10 == 0 ? "divisible" : "");
  };
  const Outcome all = run_seeds({.seed = 5, .runs = 100}, 4, 1000, run);
  EXPECT_EQ(all.runs, 100U);
  EXPECT_EQ(all.failures.size(), 10U);
  EXPECT_EQ(all.failures.begin()->first, 10U);
  for (const auto& [seed, times] : runs) EXPECT_EQ(times, 1) << seed;
  EXPECT_EQ(run_seeds({.seed = 5, .runs = 100}, 1, 2, run).runs, 16U);  // seeds 5 to 20
  EXPECT_EQ(run_seeds({.seed = 5, .seconds = 0}, 1, 2, run).runs, 1U);
}

TEST(Campaign, ReducesToWhatFails) {
  std::vector<int> elements(100);
  for (int i = 0; i < 100; ++i) elements[static_cast<std::size_t>(i)] = i;
  const auto fewer = reduce(elements, [](const std::vector<int>& kept) {
    return std::ranges::binary_search(kept, 13) && std::ranges::binary_search(kept, 77);
  });
  EXPECT_EQ(fewer, (std::vector{13, 77}));
  EXPECT_EQ(reduce(fewer, [](const auto&) { return true; }), std::vector<int>{});
  EXPECT_EQ(reduce(std::vector<int>{}, [](const auto&) { return true; }), std::vector<int>{});
}

}  // namespace
}  // namespace kolo::internal::campaign
