// SPDX-License-Identifier: Apache-2.0
// Random programs on simulated ranks.
//
//   --runs N   number of programs (1000)
//   --seed S   seed of the first program; the others follow (0)
//   --jobs J   number of threads (1)
//   --print    print the program of the seed instead of running it
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "campaign.hpp"
#include "generator.hpp"

namespace {

struct Options {
  std::uint64_t runs = 1000;
  std::uint64_t seed = 0;
  int jobs = 1;
  bool print = false;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--print") {
      options.print = true;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    const std::string value = argv[++i];
    if (name == "--runs") {
      options.runs = std::stoull(value);
    } else if (name == "--seed") {
      options.seed = std::stoull(value);
    } else if (name == "--jobs") {
      options.jobs = std::stoi(value);
    } else {
      throw std::invalid_argument("unknown option " + name);
    }
  }
  return options;
}

using Number = unsigned long long;

int run(const Options& options) {
  using namespace kolo::internal::simulation;
  if (options.print) {
    std::fputs(to_string(make_program(options.seed)).c_str(), stdout);
    return 0;
  }
  const auto begin = std::chrono::steady_clock::now();
  const Campaign campaign = run_campaign(options.seed, options.runs, options.jobs);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  for (const auto& [seed, text] : campaign.broken)
    std::printf("seed %llu broke a promise: %s\n", static_cast<Number>(seed), text.c_str());
  std::printf(
      "%llu programs, seeds from %llu, in %.1f s: %llu answers, %llu of them errors; %llu batches; "
      "%llu plans repeated %llu batches; %zu broken\n",
      static_cast<Number>(campaign.runs), static_cast<Number>(options.seed), took.count(),
      static_cast<Number>(campaign.answers), static_cast<Number>(campaign.failures),
      static_cast<Number>(campaign.batches), static_cast<Number>(campaign.plans),
      static_cast<Number>(campaign.replayed), campaign.broken.size());
  return campaign.broken.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(read_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulation_program: %s\n", error.what());
    return 2;
  }
}
