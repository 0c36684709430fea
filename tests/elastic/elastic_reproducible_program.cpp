// SPDX-License-Identifier: Apache-2.0
// Trains elastically with ReproducibleGradients, and compares the parameters after every step with
// those of one process that computes all shards.
//
//   elastic_reproducible_program FOLDER [fault=KIND:PHASE:RANK:STEP]... [grow_to=N]
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iostream>
#include <kolo/kolo.hpp>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "faults.hpp"
#include "training/reproducible/exact_sum.hpp"

namespace {

using kolo::internal::Faults;
using Floats = std::vector<float>;

constexpr int shards = 12;
constexpr std::size_t parameters = 501;
constexpr int steps = 50;

struct Model {
  Floats weights = Floats(parameters, 0.5F);
  Floats momentum = Floats(parameters);
  Floats gradient = Floats(parameters);

  /// Of magnitudes that make sums in other orders differ.
  void compute(int step, int shard) {
    for (std::size_t i = 0; i < parameters; ++i) {
      const double phase = 1.0 + step + 0.37 * shard + 0.011 * static_cast<double>(i);
      const auto which = (static_cast<int>(i) * 7 + shard * 5) % 24;
      const double scale = std::exp2(static_cast<double>(which) - 18.0);
      gradient[i] = static_cast<float>(std::sin(phase) * scale) * weights[i];
    }
  }
  void step() {
    for (std::size_t i = 0; i < parameters; ++i) {
      momentum[i] = 0.9F * momentum[i] + gradient[i];
      weights[i] -= 0.01F * momentum[i];
    }
  }
};

struct Options {
  std::vector<std::string> faults{};
  int grow_to = 0;
};

class Training {
 public:
  Training(const Options& options, Faults& faults) : options_(options), faults_(faults) {
    state_.add("weights", model_.weights)
        .add("momentum", model_.momentum)
        .add("history", history_)
        .add("used", used_)
        .add("step", step_);
  }

  /// The parameters after each step.
  Floats run() {
    kolo::elastic::run(state_, [this] { train(); });
    return history_;
  }
  [[nodiscard]] std::size_t different_sizes() const { return used_.size(); }

 private:
  void train() {
    kolo::ReproducibleGradients reproducible({.shards = shards});
    const std::vector<kolo::NamedTensor> gradients{{"gradient", model_.gradient}};
    while (step_ < steps || kolo::size() < options_.grow_to) {
      faults_.at("step", kolo::rank(), static_cast<std::size_t>(step_));
      if (step_ < steps) {
        reproducible.reduce([&](int shard) { model_.compute(static_cast<int>(step_), shard); },
                            gradients);
        model_.step();
        history_.insert(history_.end(), model_.weights.begin(), model_.weights.end());
        const auto size = static_cast<std::int64_t>(kolo::size());
        if (used_.empty() || used_.back() != size) used_.push_back(size);
        ++step_;
      }
      state_.commit();
      if (options_.grow_to > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  const Options& options_;
  Faults& faults_;
  Model model_{};
  Floats history_{};
  std::vector<std::int64_t> used_{};
  std::int64_t step_ = 0;
  kolo::elastic::State state_{};
};

Floats train_alone() {
  Model model;
  Floats history;
  kolo::internal::ExactSum sum(parameters);
  for (int step = 0; step < steps; ++step) {
    sum.clear();
    for (int shard = shards; shard-- > 0;) {
      model.compute(step, shard);
      sum.add(model.gradient);
    }
    sum.write_mean(model.gradient, shards);
    model.step();
    history.insert(history.end(), model.weights.begin(), model.weights.end());
  }
  return history;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    for (const std::string text : std::span(argv + 2, static_cast<std::size_t>(argc - 2))) {
      if (text.starts_with("fault=")) options.faults.push_back(text.substr(6));
      if (text.starts_with("grow_to=")) options.grow_to = std::stoi(text.substr(8));
    }
    static Faults faults(argv[1], options.faults);
    const kolo::Session session;
    Training training(options, faults);
    const Floats history = training.run();
    faults.end();
    if (history != train_alone()) throw std::runtime_error("other bits than one process");
    std::cout << fmt::format("rank {}: the bits of one process, in {} numbers of ranks\n",
                             kolo::rank(), training.different_sizes());
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "elastic_reproducible_program: " << error.what() << '\n';
    return 1;
  }
}
