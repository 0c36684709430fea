// SPDX-License-Identifier: Apache-2.0
// Trains elastically while ranks are lost, and compares the result with a replay.
//
//   elastic_program FOLDER [fault=KIND:PHASE:RANK:STEP]... [NAME=VALUE]...
//
// The state has a history: the number of ranks of each step, and how often each example was used.
// The history is committed with the parameters, so it contains exactly the steps that count. At the
// end each rank repeats these steps alone, and compares all bits.
//
// Options: see below. With until_file=1, the training continues until the file FOLDER/end exists.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <kolo/kolo.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "faults.hpp"
#include "history.hpp"
#include "momentum.hpp"

namespace {

using kolo::internal::Faults;
using kolo::internal::History;
using kolo::internal::Momentum;

constexpr std::int64_t examples = 60;
constexpr std::int64_t batch = 2;

struct Options {
  std::string folder{};
  std::vector<std::string> faults{};
  std::int64_t epochs = 3;
  std::size_t commit_every = 1;  // steps
  std::size_t size = 1000;       // parameters
  bool exact = false;            // gradients
  bool sharded = false;          // optimizer
  bool until_file = false;
  int grow_to = 0;              // trains until so many ranks do
  int grow_from = 0;            // and so few have, before
  int pause_ms = 0;             // in each step
  std::uintmax_t load_for = 0;  // a later process loads its data while others make so many steps
  bool checks_only = false;     // check_membership after each step, and commits after an epoch
  std::string unfit{};          // what a process that is started later has of its own
  std::string mistake{};        // mistake that the program makes
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
    if (name == "size") options.size = std::stoull(value);
    if (name == "exact") options.exact = value == "1";
    if (name == "sharded") options.sharded = value == "1";
    if (name == "until_file") options.until_file = value == "1";
    if (name == "grow_to") options.grow_to = std::stoi(value);
    if (name == "grow_from") options.grow_from = std::stoi(value);
    if (name == "load_for") options.load_for = std::stoull(value);
    if (name == "pause_ms") options.pause_ms = std::stoi(value);
    if (name == "checks_only") options.checks_only = value == "1";
    if (name == "mistake") options.mistake = value;
    if (name == "unfit" && std::getenv("RANK") == nullptr) options.unfit = value;
  }
  return options;
}

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

/// As many bytes as steps were made, with load_for.
std::string steps_file(const Options& options) { return options.folder + "/steps"; }

/// Loads data before a session, while the other ranks must continue to train. Throws if they do
/// not.
void load_data(const Options& options) {
  if (options.load_for == 0 || std::getenv("RANK") != nullptr) return;
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const std::uintmax_t before = std::filesystem::file_size(steps_file(options));
  while (std::filesystem::file_size(steps_file(options)) < before + options.load_for) {
    if (std::chrono::steady_clock::now() > until)
      throw std::runtime_error("the others do not train while a new process loads its data");
    std::this_thread::yield();
  }
  std::cerr << fmt::format("{} steps were made while data was loaded\n", options.load_for);
}

void advance(kolo::DistributedSampler& sampler) {
  sampler.advance(batch);
  if (sampler.steps_left(batch) == 0) sampler.begin_epoch(sampler.epoch() + 1);
}

/// `Optimizer`: DistributedOptimizer or ShardedOptimizer.
template <typename Optimizer>
class Training {
 public:
  Training(const Options& options, Faults& faults) : options_(options), faults_(faults) {
    state_.add("weights", model_.weights);
    if constexpr (is_sharded)
      state_.add_handler("momentum", std::make_unique<kolo::internal::ShardedMomentum>(
                                         model_, [this] { return shard(); }));
    else
      state_.add("momentum", model_.momentum);
    state_.add("sampler", sampler_)
        .add("history", history_)
        .add("used", used_)
        .add("optimizer", optimizer_)
        .add_handler("faults", std::make_unique<kolo::internal::FaultyHandler>(
                                   faults_, [this] { return history_.steps(); }));
    if (options_.unfit == "part") state_.add("another", another_);
    state_.on_reset([this] { fault_at("reset"); });
  }

  int run() {
    if (options_.mistake == "early") kolo::barrier();
    kolo::elastic::run(state_, [this] { train(); });
    if (options_.mistake == "twice") kolo::elastic::run(state_, [this] { train(); });
    faults_.end();
    const int status = compare_with_replay();
    // Each rank says so: others may be killed before they do.
    if (status == 0)
      std::cout << fmt::format("as replayed: {} steps of {} ranks\n", history_.steps(),
                               fmt::join(history_.numbers_of_ranks(), " "));
    return status;
  }

 private:
  static constexpr bool is_sharded = std::same_as<Optimizer, kolo::ShardedOptimizer<Momentum>>;

  /// The elements that this rank has the momentum of.
  [[nodiscard]] kolo::Shard shard() const {
    if constexpr (is_sharded) return optimizer_.shards()[0];
    return {0, 0, std::ssize(model_.weights)};
  }
  void fault_at(const char* phase) { faults_.at(phase, kolo::rank(), history_.steps()); }

  [[nodiscard]] bool goes_on() {
    if (options_.until_file) return !is_ended_;
    if (sampler_.epoch() < options_.epochs) return true;
    if (options_.grow_to == 0) return false;
    return history_.min() > options_.grow_from || history_.last() < options_.grow_to;
  }

  void train() {
    if (kolo::rank() == 0)
      std::cerr << fmt::format("session of {} ranks from step {}\n", kolo::size(),
                               history_.steps());
    if (options_.load_for > 0)  // who observes the steps also wants to know whose they are
      std::ofstream(fmt::format("{}/rank.{}", options_.folder, kolo::rank())) << ::getpid();
    begins_ = true;
    while (goes_on()) {
      step(first_batch(sampler_.indices()));
      const std::int64_t epoch = sampler_.epoch();
      advance(sampler_);
      const bool commits = options_.checks_only ? sampler_.epoch() > epoch
                                                : history_.steps() % options_.commit_every == 0;
      if (commits) {
        fault_at("commit");
        state_.commit();
      } else if (options_.checks_only) {
        state_.check_membership();
      }
    }
    fault_at("end");
  }

  void step(std::span<const std::int64_t> own) {
    model_.compute(own);
    std::vector<std::int32_t> used(examples + 1);
    for (const std::int64_t example : own) ++used[static_cast<std::size_t>(example)];
    used.back() = kolo::rank() == 0 && std::filesystem::exists(options_.folder + "/end") ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(options_.pause_ms));
    fault_at("before");
    if (options_.mistake == "future") {
      if (kept_.valid()) kept_.get();
      kept_ = kolo::barrier_async();
    }
    auto counted = kolo::allreduce_async(used, {.name = "used", .op = kolo::ReduceOp::sum});
    fault_at("step");
    if (begins_) fault_at("negotiation");  // no session has seen these operations before
    // A step that was not finished leaves something wrong behind.
    const double kept = std::exchange(model_.weights.front(), 1e9);
    fault_at("batch");
    kolo::ReducedGradients reduced = optimizer_.reduce();
    counted.get();
    model_.weights.front() = kept;
    optimizer_.step(std::move(reduced));
    for (std::size_t i = 0; i < used_.size(); ++i) used_[i] += used[i];
    is_ended_ = used.back() != 0;
    history_.add(kolo::size());
    if (options_.load_for > 0 && kolo::rank() == 0)
      std::ofstream(steps_file(options_), std::ios::app) << '.';
    if (std::exchange(begins_, false) && kolo::rank() == 0) faults_.end_first_step();
  }

  [[nodiscard]] int compare_with_replay() const {
    Momentum model(options_.size, options_.exact);
    kolo::DistributedSampler position = make_sampler(0, 1);
    std::vector<std::int32_t> used(examples);
    history_.for_each_step([&](int ranks) {
      std::vector<double> sum(options_.size);
      for (int rank = 0; rank < ranks; ++rank) {
        kolo::DistributedSampler sampler = make_sampler(rank, ranks);
        sampler.load_state(position.state());
        const std::vector<std::int64_t> indices = sampler.indices();
        model.compute(first_batch(indices));
        for (const std::int64_t example : first_batch(indices))
          ++used[static_cast<std::size_t>(example)];
        for (std::size_t i = 0; i < sum.size(); ++i)
          sum[i] = rank == 0 ? model.gradient[i] : sum[i] + model.gradient[i];
      }
      std::ranges::copy(sum, model.gradient.begin());
      model.step();
      kolo::DistributedSampler next = make_sampler(0, ranks);
      next.load_state(position.state());
      advance(next);
      position.load_state(next.state());
    });
    return is_same(model) && is_each_once(used) ? 0 : 1;
  }

  [[nodiscard]] bool is_same(const Momentum& replayed) const {
    const kolo::Shard own = shard();
    const auto first = static_cast<std::size_t>(own.begin);
    const bool same = std::memcmp(replayed.weights.data(), model_.weights.data(),
                                  options_.size * sizeof(double)) == 0 &&
                      std::memcmp(replayed.momentum.data() + first, model_.momentum.data() + first,
                                  static_cast<std::size_t>(own.size()) * sizeof(double)) == 0;
    if (!same) std::cerr << fmt::format("rank {}: other parameters than replayed\n", kolo::rank());
    return same;
  }

  [[nodiscard]] bool is_each_once(const std::vector<std::int32_t>& replayed) const {
    const bool ends_anywhere =
        options_.until_file || options_.grow_to > 0 || options_.grow_from > 0;
    const bool each_once =
        replayed == used_ && std::ranges::all_of(used_, [&](std::int32_t times) {
          return ends_anywhere || times == static_cast<std::int32_t>(sampler_.epoch());
        });
    if (!each_once)
      std::cerr << fmt::format("rank {}: examples were used {} times\n", kolo::rank(),
                               fmt::join(used_, " "));
    return each_once;
  }

  const Options& options_;
  Faults& faults_;
  Momentum model_{options_.size, options_.exact};
  kolo::DistributedSampler sampler_ = make_sampler();
  Optimizer optimizer_{model_, {.op = kolo::ReduceOp::sum}};
  History history_{};
  std::vector<std::int32_t> used_ = std::vector<std::int32_t>(examples);
  kolo::elastic::State state_{};
  int another_ = 0;
  kolo::Future<void> kept_{};
  bool begins_ = false;    // no step was made in this session
  bool is_ended_ = false;  // there is a file that says so
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    Faults& faults = *new Faults(options.folder, options.faults);
    if (const char* const rank = std::getenv("RANK")) {
      faults.at("start", std::atoi(rank), 0);
      faults.at("startup", std::atoi(rank), 0);  // with a delay: while the session starts
    }
    const int threshold = options.unfit == "setting" ? -1 : 1 << 20;
    const kolo::SessionOptions session_options{.fusion_threshold = threshold};
    load_data(options);
    int status = 0;
    {
      const kolo::Session session(session_options);
      status = options.sharded
                   ? Training<kolo::ShardedOptimizer<Momentum>>(options, faults).run()
                   : Training<kolo::DistributedOptimizer<Momentum>>(options, faults).run();
    }
    if (options.mistake == "reopen") const kolo::Session another(session_options);
    return status;
  } catch (const std::exception& error) {
    std::cerr << "elastic_program: " << error.what() << '\n';
    return 1;
  }
}
