// SPDX-License-Identifier: Apache-2.0
// The index of a ShardedOptimizer's state: "state.json".
#include "training/checkpoint/index_files.hpp"

#include "target.hpp"
#include "training/checkpoint/strict_json.hpp"

namespace kolo::internal::fuzz {
namespace {

bool run(Bytes bytes) {
  internal::ShardIndex index;
  try {
    index = internal::parse_shard_index(as_text(bytes));
  } catch (const internal::JsonFault&) {
    return false;
  }
  require(index.ranks >= 1 && index.ranks <= 1'000'000, "an index of no or too many files");
  require(internal::parse_shard_index(internal::to_text(index)) == index,
          "an index is another one when it is written and read again");
  return true;
}

std::vector<Seed> seeds() {
  return {
      {"one", internal::to_text({.key = "5d2f0c3ab1947e60", .ranks = 1})},
      {"many", internal::to_text({.key = "", .ranks = 1'000'000})},
      {"more", R"( {"ranks": 4, "version": [1, {"of": null}], "key": "\u00e9\\\"\ud83d\ude00"} )"}};
}

}  // namespace

const Target shard_index_target{
    .name = "shard_index", .max_bytes = 256, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
