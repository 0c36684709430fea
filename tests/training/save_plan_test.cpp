// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/save_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "training/safetensors/safetensors.hpp"

namespace kolo::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kilo = 1024;

StateView with_tensors(const std::vector<std::pair<std::string, std::int64_t>>& bytes) {
  StateView state;
  for (const auto& [name, size] : bytes)
    state.tensors.emplace(name, TensorSource(DType::u8, Shape{size}, {}));
  state.metadata["model.key"] = "text";
  return state;
}

StateView own_of(int rank) {
  return with_tensors({{"per_rank." + std::to_string(rank) + ".random", 8}});
}

std::uint64_t bytes_of(const StateView& state) {
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : state.tensors) bytes += tensor.bytes();
  return bytes;
}

std::vector<SavePlan> plans(const std::vector<SaveOffer>& offers, const StateView& shared) {
  std::vector<SavePlan> all;
  for (int rank = 0; rank < static_cast<int>(offers.size()); ++rank)
    all.push_back(plan_save(offers, rank, shared, own_of(rank)));
  return all;
}

TEST(SavePlan, DividesTheLargeTensorsAndLeavesTheSmallOnesToRank0) {
  StateView shared = with_tensors({{"m.a", 64 * kilo},
                                   {"m.b", 900 * kilo},
                                   {"m.c", 500 * kilo},
                                   {"m.d", 300 * kilo},
                                   {"m.small", 64 * kilo - 1},
                                   {"text", 900 * kilo}});
  const std::vector<SavePlan> all =
      plans(std::vector<SaveOffer>(3, {.sees_folder = true, .layout = "x"}), shared);
  EXPECT_THAT(names_of(all[0].state.tensors),
              ElementsAre("m.b", "m.small", "per_rank.0.random", "text"));
  EXPECT_THAT(names_of(all[1].state.tensors), ElementsAre("m.c", "per_rank.1.random"));
  EXPECT_THAT(names_of(all[2].state.tensors), ElementsAre("m.a", "m.d", "per_rank.2.random"));
  EXPECT_EQ(all[0].state.metadata.at("model.key"), "text");
  for (const SavePlan& plan : all) EXPECT_EQ(plan.files, 3);
  EXPECT_EQ(all[2].file, 2);
}

TEST(SavePlan, IsEven) {
  std::vector<std::pair<std::string, std::int64_t>> tensors;
  for (int i = 0; i < 100; ++i)
    tensors.emplace_back("m." + std::to_string(i), 100 * kilo + i * i * kilo);
  const StateView shared = with_tensors(tensors);
  const std::vector<SavePlan> all =
      plans(std::vector<SaveOffer>(4, {.sees_folder = true, .layout = "x"}), shared);
  for (const SavePlan& plan : all)
    EXPECT_LT(bytes_of(plan.state), bytes_of(shared) / 4 * 105 / 100);
}

TEST(SavePlan, RanksWithOtherPartsWriteOnlyWhatIsTheirOwn) {
  const StateView shared = with_tensors({{"m.a", 100 * kilo}, {"m.b", 100 * kilo}});
  std::vector<SaveOffer> offers(3, {.sees_folder = true, .layout = "x"});
  offers[1].layout = "y";
  const std::vector<SavePlan> all = plans(offers, shared);
  EXPECT_THAT(names_of(all[0].state.tensors), ElementsAre("m.a", "per_rank.0.random"));
  EXPECT_THAT(names_of(all[1].state.tensors), ElementsAre("per_rank.1.random"));
  EXPECT_THAT(names_of(all[2].state.tensors), ElementsAre("m.b", "per_rank.2.random"));
}

TEST(SavePlan, WhoSeesNoFolderOrHasJoinedWritesNothing) {
  const StateView shared = with_tensors({{"m.a", 100 * kilo}, {"m.b", 100 * kilo}});
  std::vector<SaveOffer> offers(4, {.sees_folder = true, .layout = "x"});
  offers[1].sees_folder = false;
  offers[3] = SaveOffer::from_text("");
  const std::vector<SavePlan> all = plans(offers, shared);
  EXPECT_EQ(all[0].files, 2);
  EXPECT_EQ(all[1].file, -1);
  EXPECT_EQ(all[2].file, 1);
  EXPECT_EQ(all[3].file, -1);
  EXPECT_THAT(all[1].state.tensors, IsEmpty());
  EXPECT_THAT(names_of(all[0].state.tensors), ElementsAre("m.a", "per_rank.0.random"));
}

TEST(SavePlan, AnOfferTravelsAsText) {
  for (const SaveOffer& offer :
       std::vector<SaveOffer>{{.sees_folder = true, .layout = "12 3"}, {.layout = "a:b"}, {}}) {
    const SaveOffer back = SaveOffer::from_text(offer.to_text());
    EXPECT_EQ(back.sees_folder, offer.sees_folder);
    EXPECT_EQ(back.layout, offer.layout);
  }
}

// Only of the tensors that ranks divide: the lengths of texts may differ.
TEST(SavePlan, LayoutsDifferInNamesShapesAndDtypesOfLargeTensors) {
  const StateView one = with_tensors({{"m.a", 100 * kilo}});
  StateView other = one;
  other.tensors.at("m.a").dtype = DType::i8;
  for (const StateView& different : {with_tensors({{"m.a", 101 * kilo}}),
                                     with_tensors({{"m.b", 100 * kilo}}), with_tensors({}), other})
    EXPECT_NE(layout_of(one), layout_of(different));
  EXPECT_EQ(layout_of(one),
            layout_of(with_tensors({{"m.a", 100 * kilo}, {"m.s", 8}, {"text", 100 * kilo}})));
}

}  // namespace
}  // namespace kolo::internal
