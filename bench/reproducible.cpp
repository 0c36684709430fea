// SPDX-License-Identifier: Apache-2.0
// The cost of ReproducibleGradients: a step with them and one that averages as usual, in turns.
//
//   mpirun -np 2 bench-reproducible [--megabytes 16] [--shards 12] [--steps 1] [--rounds 15]
//
// Gradients of f32 in eight tensors. In both kinds of step the "computation" of a shard is a copy
// of the gradients, so the time is that of the addition and exchange only. The usual step adds the
// gradients of a rank's shards and averages the sums over the ranks. Prints a row of
// reproducible.csv: the number of ranks, megabytes (10^6 bytes), shards and rounds, the median
// milliseconds of a step of each kind on the slowest rank, and the median over the rounds of the
// second divided by the first.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <kolo/kolo.hpp>
#include <kolo/training/reproducible.hpp>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "blocks.hpp"

namespace {

constexpr std::size_t tensors = 8;

using Options = std::map<std::string, int>;

Options read_options(int argc, char** argv) {
  Options options{{"--megabytes", 16}, {"--shards", 12}, {"--steps", 1}, {"--rounds", 15}};
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (!options.contains(name)) throw std::invalid_argument("unknown option " + name);
    if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    options[name] = std::stoi(argv[i + 1]);
    if (options[name] < 1) throw std::invalid_argument(name + " must be at least 1");
  }
  return options;
}

using Gradient = std::vector<float>;

class Steps {
 public:
  explicit Steps(const Options& options) : reproducible_({.shards = options.at("--shards")}) {
    const auto elements =
        static_cast<std::size_t>(options.at("--megabytes")) * 1'000'000 / sizeof(float) / tensors;
    source_.resize(elements);
    for (std::size_t i = 0; i < elements; ++i)
      source_[i] = static_cast<float>(i % 1009) * 1e-3F - 0.5F;
    gradients_.assign(tensors, Gradient(elements));
    sums_ = gradients_;
    for (std::size_t i = 0; i < tensors; ++i)
      named_.push_back({"gradient" + std::to_string(i), kolo::TensorView(gradients_[i])});
  }

  void run_usual() {
    bool first = true;
    for ([[maybe_unused]] const int shard : reproducible_.own_shards()) {
      compute();
      for (std::size_t i = 0; i < tensors; ++i) add(gradients_[i], sums_[i], first);
      first = false;
    }
    std::vector<kolo::Future<void>> operations;
    for (std::size_t i = 0; i < tensors; ++i)
      operations.push_back(
          kolo::allreduce_async(kolo::TensorView(sums_[i]), {.name = named_[i].name}));
    for (kolo::Future<void>& operation : operations) operation.get();
  }

  void run_reproducible() {
    reproducible_.reduce([this](int) { compute(); }, named_);
  }

 private:
  void compute() {
    for (Gradient& gradient : gradients_) std::ranges::copy(source_, gradient.begin());
  }

  static void add(const Gradient& gradient, Gradient& sum, bool first) {
    if (first) {
      std::ranges::copy(gradient, sum.begin());
      return;
    }
    for (std::size_t i = 0; i < gradient.size(); ++i) sum[i] += gradient[i];
  }

  kolo::ReproducibleGradients reproducible_;
  Gradient source_{};
  std::vector<Gradient> gradients_{};
  std::vector<Gradient> sums_{};
  std::vector<kolo::NamedTensor> named_{};
};

void measure(const Options& options) {
  Steps steps(options);
  std::vector<double> times[2], ratios;
  for (int round = -1; round < options.at("--rounds"); ++round) {
    double now[2] = {};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t kind = blocks::place(i, round + 1, 2);
      now[kind] =
          blocks::time_of(options.at("--steps"),
                          [&] { kind == 0 ? steps.run_usual() : steps.run_reproducible(); }) /
          options.at("--steps");
    }
    if (round < 0) continue;  // warm-up
    for (std::size_t kind = 0; kind < 2; ++kind) times[kind].push_back(now[kind]);
    ratios.push_back(now[1] / now[0]);
  }
  if (kolo::rank() != 0) return;
  std::printf("%d,%d,%d,%d,%.2f,%.2f,%.2f\n", kolo::size(), options.at("--megabytes"),
              options.at("--shards"), options.at("--rounds"), blocks::median(times[0]),
              blocks::median(times[1]), blocks::median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = read_options(argc, argv);
    const kolo::Session session(argc, argv);
    measure(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-reproducible: %s\n", error.what());
    return 1;
  }
}
