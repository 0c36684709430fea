// SPDX-License-Identifier: Apache-2.0
// The steps of each rank in an epoch, and programs as text.
#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "kolo/training/learning_rate.hpp"
#include "kolo/training/sampler.hpp"
#include "program.hpp"
#include "support/random.hpp"

namespace kolo::internal::journeys {
namespace {

using campaign::hash;

int divided_up(std::size_t number, int by) { return (static_cast<int>(number) + by - 1) / by; }

Remainder remainder_of(const Program& program) {
  if (program.has(Feature::uneven)) return Remainder::uneven;
  return program.seed % 2 == 0 ? Remainder::uneven : Remainder::pad;
}

const char* name_of(Incident incident) {
  switch (incident) {
    case Incident::mismatch: return "mismatch";
    case Incident::wrong_argument: return "wrong argument";
    case Incident::forward_exception: return "exception in forward";
    case Incident::fork: return "fork";
    case Incident::pending_future: return "exception with a pending future";
    case Incident::callback_exception: return "exception in a callback";
    case Incident::departure: return "departure";
    case Incident::stopped: return "stop";
    case Incident::many_names: return "many names";
    case Incident::set_churn: return "sets that come and go";
    default: return "exception in a hook";
  }
}

}  // namespace

Epoch::Epoch(const Program& program, int session_ranks, int epoch, int branch)
    : program_(program), epoch_(epoch), branch_(branch) {
  std::size_t largest = 0;
  for (int rank = 0; program.has(Feature::sampler) && rank < session_ranks; ++rank) {
    const DistributedSampler sampler({.examples = program.examples,
                                      .rank = rank,
                                      .ranks = session_ranks,
                                      .seed = program.seed,
                                      .remainder = remainder_of(program)});
    shares_.push_back(sampler.indices(epoch));
    largest = std::max(largest, shares_.back().size());
  }
  const int per_step = program.batch * program.passes;
  for (int rank = 0; rank < session_ranks; ++rank) {
    const auto salt = static_cast<std::uint64_t>(rank);
    const std::uint64_t random = hash({program.seed, 77, static_cast<std::uint64_t>(epoch), salt});
    const bool uneven = program.has(Feature::uneven);
    if (program.has(Feature::sampler)) {
      const std::size_t share = uneven ? shares_[static_cast<std::size_t>(rank)].size() : largest;
      steps_.push_back(divided_up(share, per_step));
    } else if (uneven) {
      steps_.push_back(static_cast<int>(random % static_cast<unsigned>(program.max_steps + 1)));
    } else {
      steps_.push_back(program.max_steps);
    }
  }
}

int Epoch::most_steps() const { return *std::ranges::max_element(steps_); }
int Epoch::fewest_steps() const { return *std::ranges::min_element(steps_); }

int Epoch::last_rank(const std::vector<int>& members) const {
  int last = members.front();
  for (const int rank : members)
    if (steps(rank) > steps(last)) last = rank;
  return last;
}

// Means need the same number on all ranks: only the last step of all is partial.
int Epoch::passes(int step, int rank, Accumulation accumulation) const {
  const bool alike = accumulation == Accumulation::mean || !program_.has(Feature::uneven);
  const int last = (alike ? most_steps() : steps(rank)) - 1;
  return step < last ? program_.passes : program_.last_passes;
}

std::vector<std::int64_t> Epoch::examples(int step, int pass, int rank) const {
  std::vector<std::int64_t> batch;
  if (program_.has(Feature::sampler)) {
    const auto& share = shares_[static_cast<std::size_t>(rank)];
    // A partial window has larger batches, so that no example is lost.
    const int first = step * program_.batch * program_.passes;
    const bool last = step == steps(rank) - 1;
    const int stride = last ? divided_up(static_cast<std::size_t>(program_.batch * program_.passes),
                                         program_.last_passes)
                            : program_.batch;
    for (int i = first + pass * stride; i < first + (pass + 1) * stride; ++i)
      if (i < static_cast<int>(share.size())) batch.push_back(share[static_cast<std::size_t>(i)]);
    return batch;
  }
  for (int i = 0; i < program_.batch; ++i) {
    const std::uint64_t example = hash(
        {program_.seed, static_cast<std::uint64_t>(epoch_), static_cast<std::uint64_t>(branch_),
         static_cast<std::uint64_t>(step * 8 + pass), static_cast<std::uint64_t>(rank * 4 + i)});
    batch.push_back(static_cast<std::int64_t>(example >> 1U));
  }
  return batch;
}

bool Epoch::skipped(int step) const {
  return program_.has(Feature::skipped_steps) &&
         hash({program_.seed, 88, static_cast<std::uint64_t>(epoch_ * 100 + step)}) % 3 == 0;
}

// Powers of two, so that the order of an optimizer's multiplications does not matter.
double Epoch::learning_rate(int step) const {
  double rate = 1.0 / 64;
  if (program_.has(Feature::schedule)) {
    const LearningRateSchedule schedule({.peak = rate,
                                         .warmup_from = rate / 4,
                                         .warmup = 1,
                                         .steps_per_epoch = program_.max_steps,
                                         .milestones = {{1.5, 0.5}, {2.0, 0.5}}});
    rate = schedule(std::int64_t{epoch_} * program_.max_steps + step);
  }
  return std::exp2(std::round(std::log2(rate)));
}

bool Epoch::loses_examples() const {
  if (!program_.has(Feature::sampler) || remainder_of(program_) != Remainder::uneven) return false;
  std::multiset<std::int64_t> seen;
  for (const auto& share : shares_) seen.insert(share.begin(), share.end());
  const std::set<std::int64_t> distinct(seen.begin(), seen.end());
  return static_cast<int>(seen.size()) != program_.examples || distinct.size() != seen.size();
}

double metric_of(const Program& program, int epoch, int step, int rank) {
  return static_cast<double>(
      hash({program.seed, 99, static_cast<std::uint64_t>(epoch),
            static_cast<std::uint64_t>(step + 1), static_cast<std::uint64_t>(rank)}) %
      1000);
}

std::string to_string(const Program& program) {
  std::ostringstream text;
  text << "seed " << program.seed << " on " << program.ranks << " ranks: " << program.epochs
       << " epochs of up to " << program.max_steps << " steps, batches of " << program.batch << ", "
       << program.passes << " passes per step, " << program.last_passes << " in the last\n  "
       << to_string(program.features) << '\n';
  for (const Model& model : program.models(program.ranks)) {
    text << "  model of " << model.sizes.size() << " parameters:";
    for (const int size : model.sizes) text << ' ' << size;
    text << (model.op == ReduceOp::sum ? ", sum" : ", average")
         << (model.accumulation == Accumulation::sum ? "" : ", mean of passes") << ", sets";
    for (const auto& set : model.sets) {
      text << " {";
      for (const int rank : set) text << ' ' << rank;
      text << " }";
    }
    text << '\n';
  }
  for (const Event& event : program.events)
    text << "  epoch " << event.epoch << " step " << event.step << ": " << name_of(event.incident)
         << " on rank " << event.odd << ", variant " << event.variant << '\n';
  return text.str();
}

}  // namespace kolo::internal::journeys
