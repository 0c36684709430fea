// SPDX-License-Identifier: Apache-2.0
// Sizes on the command line of kolo-perf.
#include "sizes.hpp"

#include "names.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

bool run(Bytes bytes) {
  std::int64_t size = 0;
  try {
    size = perf::parse_bytes("--sizes", as_text(bytes));
  } catch (const perf::UsageError&) {
    return false;
  }
  require(size > 0 && size <= std::int64_t{1} << 40, "a size beyond what is allowed");
  require(perf::parse_bytes("--sizes", std::to_string(size)) == size,
          "a size is another one when it is written and read again");
  return true;
}

std::vector<Seed> seeds() {
  return {{"bytes", "4"}, {"unit", "17B"}, {"small", "64k"}, {"K", "64KB"},      {"M", "1M"},
          {"m", "3m"},    {"MiB", "5MiB"}, {"G", "2g"},      {"most", "1024GiB"}};
}

}  // namespace

const Target sizes_target{.name = "sizes", .max_bytes = 32, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
