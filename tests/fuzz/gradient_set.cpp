// SPDX-License-Identifier: Apache-2.0
// Files with the names and shapes of gradients, for kolo-perf.
#include "gradient_sets.hpp"

#include <sstream>

#include "names.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

bool equal(const perf::Gradients& a, const perf::Gradients& b) {
  return std::ranges::equal(a, b, [](const perf::Gradient& one, const perf::Gradient& other) {
    return one.name == other.name && one.shape == other.shape;
  });
}

perf::Gradients read(const std::string& text) {
  std::istringstream lines(text);
  return perf::read_gradients(lines, "fuzz");
}

bool run(Bytes bytes) {
  perf::Gradients first;
  try {
    first = read(std::string(as_text(bytes)));
  } catch (const perf::UsageError&) {
    return false;
  }
  require(perf::count_elements(first) > 0, "a set without elements");
  require(equal(read(perf::list_gradients(first)), first),
          "a set of gradients is another one when it is listed and read again");
  return true;
}

std::vector<Seed> seeds() {
  return {{"elements", "bias 10\n"},
          {"crosses", "conv1.weight 64x3x7x7\nconv1.bias 64\n"},
          {"brackets", "fc.weight [1000, 2048] # the last layer\n\n# nothing\nfc.bias [1000]\n"},
          {"commas", "a 64,3,7,7\r\nempty 0\r\n"},
          {"tabs", "\ta\t(2,\t3)\n"}};
}

}  // namespace

const Target gradient_set_target{
    .name = "gradient_set", .max_bytes = 512, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
