// SPDX-License-Identifier: Apache-2.0
#include "shrink.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "world.hpp"

namespace kolo::internal::simulation {
namespace {

/// The set without the rank; those above it move down.
RankSet without_rank(const RankSet& ranks, int rank) {
  std::vector<int> rest;
  for (const int one : ranks.to_vector())
    if (one != rank) rest.push_back(one > rank ? one - 1 : one);
  return RankSet::of(rest);
}

/// Nothing if a set would be empty.
std::optional<Program> without_rank(Program program, int rank) {
  if (program.ranks() < 2) return std::nullopt;
  program.settings.node_of.erase(program.settings.node_of.begin() + rank);
  program.scripts.erase(program.scripts.begin() + rank);
  std::erase_if(program.pauses, [&](const Pause& pause) { return pause.rank == rank; });
  for (Pause& pause : program.pauses)
    if (pause.rank > rank) --pause.rank;
  for (RankSet& set : program.sets)
    if ((set = without_rank(set, rank)).empty()) return std::nullopt;
  for (Operation& operation : program.operations) {
    Descriptor& descriptor = operation.descriptor;
    if (!descriptor.ranks.empty() &&
        (descriptor.ranks = without_rank(descriptor.ranks, rank)).empty())
      return std::nullopt;
    if (descriptor.root >= program.ranks() || descriptor.root > rank) --descriptor.root;
    if (descriptor.type == OperationType::broadcast && descriptor.root < 0) descriptor.root = 0;
  }
  return program;
}

class Shrinker {
 public:
  Shrinker(Program program, std::string promise, int runs)
      : best_(std::move(program)), promise_(std::move(promise)), runs_(runs) {}

  Program shrink() {
    for (bool better = true; better && runs_ > 0;) {
      better = drop_ranks();
      better = drop_groups() || better;
      if (best_.stalls_end()) better = drop_acts() || better;
      better = drop_computing() || better;
    }
    return std::move(best_);
  }

 private:
  bool keep_if_it_fails(Program candidate) {
    if (runs_-- <= 0) return false;
    const std::optional<Violation> violation = violation_of(candidate);
    if (!violation || violation->promise() != promise_) return false;
    best_ = std::move(candidate);
    return true;
  }

  bool drop_ranks() {
    bool better = false;
    for (int rank = best_.ranks() - 1; rank >= 0; --rank)
      if (auto candidate = without_rank(best_, rank))
        better = keep_if_it_fails(std::move(*candidate)) || better;
    return better;
  }

  Program without(const std::function<bool(const Act&)>& drop) const {
    Program candidate = best_;
    for (Script& script : candidate.scripts)
      std::erase_if(script,
                    [&](const Act& act) { return act.kind != Act::Kind::leave && drop(act); });
    return candidate;
  }

  bool drop_groups() {
    std::set<int> groups;
    for (const Script& script : best_.scripts)
      for (const Act& act : script) groups.insert(act.group);
    const std::vector<int> all(groups.begin(), groups.end());
    const std::vector<int> fewer = campaign::reduce(all, [&](const std::vector<int>& kept) {
      return keep_if_it_fails(
          without([&](const Act& act) { return !std::ranges::binary_search(kept, act.group); }));
    });
    return fewer.size() < all.size();
  }

  bool drop_acts() {
    bool better = false;
    for (std::size_t rank = 0; rank < best_.scripts.size(); ++rank) {
      for (std::size_t act = best_.scripts[rank].size(); act-- > 0;) {
        if (best_.scripts[rank][act].kind == Act::Kind::leave) continue;
        Program candidate = best_;
        Script& script = candidate.scripts[rank];
        script.erase(script.begin() + static_cast<std::ptrdiff_t>(act));
        better = keep_if_it_fails(std::move(candidate)) || better;
      }
    }
    return better;
  }

  bool drop_computing() {
    if (std::exchange(computing_dropped_, true)) return false;
    Program candidate = without([](const Act& act) { return act.kind == Act::Kind::compute; });
    bool better = keep_if_it_fails(std::move(candidate));
    for (std::size_t pause = best_.pauses.size(); pause-- > 0;) {
      candidate = best_;
      candidate.pauses.erase(candidate.pauses.begin() + static_cast<std::ptrdiff_t>(pause));
      better = keep_if_it_fails(std::move(candidate)) || better;
    }
    candidate = best_;
    candidate.settings.jitter = 0;
    candidate.settings.wake = Time(0);
    return keep_if_it_fails(std::move(candidate)) || better;
  }

  Program best_;
  std::string promise_;
  int runs_;
  bool computing_dropped_ = false;
};

}  // namespace

std::optional<Violation> violation_of(const Program& program) {
  try {
    World(program).run();
    return std::nullopt;
  } catch (const Violation& violation) {
    return violation;
  }
}

Program shrink(Program program, const Violation& violation, int runs) {
  return Shrinker(std::move(program), violation.promise(), runs).shrink();
}

}  // namespace kolo::internal::simulation
