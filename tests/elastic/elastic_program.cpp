// SPDX-License-Identifier: Apache-2.0
// Trains elastically while ranks are lost, and compares the result with a replay.
//
//   elastic_program FOLDER [fault=KIND:PHASE:RANK:STEP]... [NAME=VALUE]...
//
// The state has a history: with how many ranks each step was made, and how often each example was
// used. It is committed with the parameters, so it tells of the steps that count. At the end each
// rank makes these steps again, alone, and compares all bits.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <kolo/kolo.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "faults.hpp"

namespace {

using kolo::internal::Faults;

constexpr std::int64_t examples = 60;
constexpr std::int64_t batch = 2;
constexpr std::size_t parameters = 1000;

struct Options {
  std::string folder{};
  std::vector<std::string> faults{};
  std::int64_t epochs = 3;
  std::size_t commit_every = 1;  // steps
  int grow_to = 0;               // trains until so many ranks do
  int grow_from = 0;             // and so few have, before
  int pause_ms = 0;              // in each step
  bool checks_only = false;      // check_membership after each step, and commits after an epoch
  std::string unfit{};           // what a process that is started later has of its own
  std::string mistake{};         // of the program
};

Options parse(int argc, char** argv) {
  Options options;
  options.folder = argv[1];
  for (const std::string text : std::span(argv + 2, static_cast<std::size_t>(argc - 2))) {
    const std::string name = text.substr(0, text.find('='));
    const std::string value = text.substr(name.size() + 1);
    if (name == "fault") options.faults.push_back(value);
    if (name == "epochs") options.epochs = std::stoi(value);
    if (name == "commit_every") options.commit_every = std::stoull(value);
    if (name == "grow_to") options.grow_to = std::stoi(value);
    if (name == "grow_from") options.grow_from = std::stoi(value);
    if (name == "pause_ms") options.pause_ms = std::stoi(value);
    if (name == "checks_only") options.checks_only = value == "1";
    if (name == "mistake") options.mistake = value;
    if (name == "unfit" && std::getenv("RANK") == nullptr) options.unfit = value;
  }
  return options;
}

/// A custom optimizer. Its gradients are in memory that the ranks share.
struct Momentum {
  std::vector<double> weights = std::vector<double>(parameters);
  std::vector<double> momentum = std::vector<double>(parameters);
  kolo::SharedVector<double> gradient = kolo::SharedVector<double>(parameters);

  Momentum() {
    for (std::size_t i = 0; i < parameters; ++i) weights[i] = 1.0 / static_cast<double>(i + 7);
  }
  [[nodiscard]] std::vector<kolo::NamedTensor> gradients() { return {{"weights", gradient}}; }
  void step() {
    for (std::size_t i = 0; i < parameters; ++i) {
      momentum[i] = 0.9 * momentum[i] + gradient[i];
      weights[i] -= 0.05 * momentum[i];
    }
  }
  /// Of these examples; all bits depend on the weights.
  void compute(std::span<const std::int64_t> of) {
    std::fill(gradient.begin(), gradient.end(), 0.0);
    for (const std::int64_t example : of)
      for (std::size_t i = 0; i < parameters; ++i)
        gradient[i] += 1.0 / static_cast<double>(3 + example + static_cast<std::int64_t>(i)) -
                       0.01 * weights[i];
  }
};

std::span<const std::int64_t> first_batch(const std::vector<std::int64_t>& indices) {
  return std::span(indices).first(std::min<std::size_t>(indices.size(), batch));
}

kolo::DistributedSampler make_sampler(int rank = -1, int ranks = -1) {
  return kolo::DistributedSampler({.examples = examples,
                                   .rank = rank,
                                   .ranks = ranks,
                                   .seed = 5,
                                   .remainder = kolo::Remainder::uneven});
}

void advance(kolo::DistributedSampler& sampler) {
  sampler.advance(batch);
  if (sampler.steps_left(batch) == 0) sampler.begin_epoch(sampler.epoch() + 1);
}

class Training {
 public:
  Training(const Options& options, Faults& faults) : options_(options), faults_(faults) {
    state_.add("weights", model_.weights)
        .add("momentum", model_.momentum)
        .add("sampler", sampler_)
        .add("ranks", ranks_)
        .add("used", used_)
        .add("optimizer", optimizer_)
        .add_part("faults", std::make_unique<kolo::internal::FaultyPart>(faults_, ranks_));
    if (options_.unfit == "part") state_.add("another", another_);
    state_.on_reset([this] { faults_.at("reset", kolo::rank(), ranks_.size()); });
  }

  int run() {
    if (options_.mistake == "early") kolo::barrier();
    kolo::elastic::run(state_, [this] { train(); });
    if (options_.mistake == "twice") kolo::elastic::run(state_, [this] { train(); });
    faults_.end();
    const int status = compare_with_replay();
    if (kolo::rank() == 0 && status == 0)
      std::cout << fmt::format("as replayed: {} steps of {} ranks\n", ranks_.size(),
                               fmt::join(numbers_of_ranks(), " "));
    return status;
  }

 private:
  [[nodiscard]] bool goes_on() {
    if (sampler_.epoch() < options_.epochs) return true;
    if (options_.grow_to == 0) return false;
    const bool shrank = std::ranges::find(ranks_, options_.grow_from) != ranks_.end();
    return !shrank || ranks_.back() < options_.grow_to;
  }

  void train() {
    if (kolo::rank() == 0)
      std::cerr << fmt::format("session of {} ranks from step {}\n", kolo::size(), ranks_.size());
    begins_ = true;
    while (goes_on()) {
      step(first_batch(sampler_.indices()));
      const std::int64_t epoch = sampler_.epoch();
      advance(sampler_);
      const bool commits = options_.checks_only ? sampler_.epoch() > epoch
                                                : ranks_.size() % options_.commit_every == 0;
      if (commits) {
        state_.commit();
      } else if (options_.checks_only) {
        state_.check_membership();
      }
    }
  }

  void step(std::span<const std::int64_t> own) {
    model_.compute(own);
    std::vector<std::int32_t> used(examples);
    for (const std::int64_t example : own) ++used[static_cast<std::size_t>(example)];
    std::this_thread::sleep_for(std::chrono::milliseconds(options_.pause_ms));
    faults_.at("before", kolo::rank(), ranks_.size());
    if (options_.mistake == "future") {
      if (kept_.valid()) kept_.get();
      kept_ = kolo::barrier_async();
    }
    auto counted = kolo::allreduce_async(used, {.name = "used", .op = kolo::ReduceOp::sum});
    faults_.at("step", kolo::rank(), ranks_.size());
    // A step that was not finished leaves something wrong behind.
    const double kept = std::exchange(model_.weights.front(), 1e9);
    kolo::ReducedGradients reduced = optimizer_.reduce();
    counted.get();
    model_.weights.front() = kept;
    optimizer_.step(std::move(reduced));
    for (std::size_t i = 0; i < used.size(); ++i) used_[i] += used[i];
    ranks_.push_back(kolo::size());
    if (kolo::rank() == 0) report_recovery();
  }

  /// Once after each fault.
  void report_recovery() {
    if (!std::exchange(begins_, false)) return;
    const auto [faults, since] = faults_.since_last();
    if (faults > std::exchange(faults_seen_, faults))
      std::cout << fmt::format("next step {:.1f} ms after a fault\n", since) << std::flush;
  }

  /// Each number when it changes.
  [[nodiscard]] std::vector<std::int32_t> numbers_of_ranks() const {
    std::vector<std::int32_t> numbers = ranks_;
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    return numbers;
  }

  [[nodiscard]] int compare_with_replay() const {
    Momentum model;
    kolo::DistributedSampler position = make_sampler(0, 1);
    std::vector<std::int32_t> used(examples);
    for (const std::int32_t ranks : ranks_) {
      std::vector<double> sum(parameters);
      for (int rank = 0; rank < ranks; ++rank) {
        kolo::DistributedSampler sampler = make_sampler(rank, ranks);
        sampler.load(position.state());
        const std::vector<std::int64_t> indices = sampler.indices();
        model.compute(first_batch(indices));
        for (const std::int64_t example : first_batch(indices))
          ++used[static_cast<std::size_t>(example)];
        for (std::size_t i = 0; i < parameters; ++i)
          sum[i] = rank == 0 ? model.gradient[i] : sum[i] + model.gradient[i];
      }
      std::ranges::copy(sum, model.gradient.begin());
      model.step();
      kolo::DistributedSampler next = make_sampler(0, ranks);
      next.load(position.state());
      advance(next);
      position.load(next.state());
    }
    const bool same = std::memcmp(model.weights.data(), model_.weights.data(),
                                  parameters * sizeof(double)) == 0 &&
                      std::memcmp(model.momentum.data(), model_.momentum.data(),
                                  parameters * sizeof(double)) == 0;
    const bool each_once = used == used_ && std::ranges::all_of(used_, [&](std::int32_t times) {
                             return times == static_cast<std::int32_t>(sampler_.epoch()) ||
                                    options_.grow_to > 0 || options_.grow_from > 0;
                           });
    if (!same) std::cerr << fmt::format("rank {}: other parameters than replayed\n", kolo::rank());
    if (!each_once)
      std::cerr << fmt::format("rank {}: examples were used {} times\n", kolo::rank(),
                               fmt::join(used_, " "));
    return same && each_once ? 0 : 1;
  }

  const Options& options_;
  Faults& faults_;
  Momentum model_{};
  kolo::DistributedSampler sampler_ = make_sampler();
  kolo::DistributedOptimizer<Momentum> optimizer_{model_, {.op = kolo::ReduceOp::sum}};
  std::vector<std::int32_t> ranks_{};  // of each step
  std::vector<std::int32_t> used_ = std::vector<std::int32_t>(examples);
  kolo::elastic::State state_{};
  int another_ = 0;
  kolo::Future<void> kept_{};
  bool begins_ = false;  // no step was made in this session
  std::size_t faults_seen_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    Faults& faults = *new Faults(options.folder, options.faults);
    if (const char* const rank = std::getenv("RANK")) faults.at("start", std::atoi(rank), 0);
    const int threshold = options.unfit == "setting" ? -1 : 1 << 20;
    const kolo::SessionOptions session_options{.fusion_threshold = threshold};
    int status = 0;
    {
      const kolo::Session session(session_options);
      status = Training(options, faults).run();
    }
    if (options.mistake == "reopen") const kolo::Session another(session_options);
    return status;
  } catch (const std::exception& error) {
    std::cerr << "elastic_program: " << error.what() << '\n';
    return 1;
  }
}
