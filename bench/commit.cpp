// SPDX-License-Identifier: Apache-2.0
// The time of an elastic commit compared with a copy of the same bytes, alternating, for states of
// several sizes. Usage: kolorun -np N --min-np N bench-commit [COMMITS]
// Prints `bytes,commit_ms,copy_ms`: medians over COMMITS (default 51) of the slowest rank.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kolo/kolo.hpp>
#include <string>
#include <vector>

#include "blocks.hpp"

namespace {

void measure(int commits, kolo::elastic::State& state, std::vector<float>& parameters) {
  const std::size_t bytes = parameters.size() * sizeof(float);
  std::string copy(bytes, '\0');
  std::vector<double> commit_ms;
  std::vector<double> copy_ms;
  state.commit();  // allocates the commit's memory, which later commits reuse
  for (int i = 0; i < commits; ++i) {
    commit_ms.push_back(blocks::time_of(1, [&] { state.commit(); }));
    copy_ms.push_back(
        blocks::time_of(1, [&] { std::memcpy(copy.data(), parameters.data(), bytes); }));
  }
  if (kolo::rank() == 0)
    std::printf("%zu,%.4f,%.4f\n", bytes, blocks::median(commit_ms), blocks::median(copy_ms));
}

}  // namespace

int main(int argc, char** argv) {
  const int commits = argc > 1 ? std::atoi(argv[1]) : 51;
  if (commits < 1) return 2;
  const kolo::Session session;
  std::vector<float> parameters;
  kolo::elastic::State state;
  state.add("parameters", parameters);
  kolo::elastic::run(state, [&] {
    for (const std::size_t kib : {1U, 1024U, 102'400U}) {
      parameters.assign(kib * 1024 / sizeof(float), 1.0F);
      measure(commits, state, parameters);
    }
  });
}
