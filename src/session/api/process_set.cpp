// SPDX-License-Identifier: Apache-2.0
// Implements kolo/process_set.hpp.
#include "kolo/process_set.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "session/api/current.hpp"

namespace kolo {

using namespace internal;
namespace {

/// Checks the ranks of a new set, and sorts them.
std::vector<int> checked(std::span<const int> ranks, const session::Topology& topology) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(fmt::format("add_process_set on rank {}: {}", topology.rank, why), "",
                          {topology.rank});
  };
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) refuse("a set needs at least one rank");
  for (const int rank : {sorted.front(), sorted.back()})
    if (rank < 0 || rank >= topology.size)
      refuse(fmt::format("rank {} is not one of the ranks 0-{}", rank, topology.size - 1));
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) refuse(fmt::format("rank {} is there twice", *twice));
  return sorted;
}

/// Submits a change of the sets and waits for it. Returns the number of the set on which all ranks
/// agreed.
SetId change(session::Engine& engine, Descriptor descriptor) {
  session::require_collectives_allowed(to_string(descriptor.type), "");
  SetId agreed = world_set;
  const session::OperationPtr operation = engine.submit(
      {.descriptor = std::move(descriptor), .on_answer = [&](std::int64_t id) { agreed = id; }},
      /*waits=*/true);
  engine.wait(*operation, std::chrono::steady_clock::time_point::max());
  if (operation->error()) std::rethrow_exception(operation->error());
  return agreed;
}

}  // namespace

std::int64_t ProcessSet::id() const noexcept { return data_ ? data_->id : world_set; }

std::vector<int> ProcessSet::ranks() const {
  return data_ ? data_->ranks
               : session::current_engine("kolo::ProcessSet::ranks")->process_sets().world_ranks();
}

int ProcessSet::size() const {
  return data_ ? static_cast<int>(data_->ranks.size()) : kolo::size();
}

int ProcessSet::rank() const { return data_ ? data_->own_place : kolo::rank(); }

bool ProcessSet::contains(int rank) const {
  if (!data_) return rank >= 0 && rank < kolo::size();
  return std::binary_search(data_->ranks.begin(), data_->ranks.end(), rank);
}

ProcessSet add_process_set(std::span<const int> ranks) {
  const auto engine = session::current_engine("kolo::add_process_set");
  const std::vector<int> sorted = checked(ranks, engine->topology());
  Descriptor descriptor;
  descriptor.type = OperationType::add_process_set;
  descriptor.ranks = RankSet::of(sorted);
  const SetId id = change(*engine, std::move(descriptor));
  return engine->process_sets().add(id, sorted);
}

ProcessSet add_process_set(std::initializer_list<int> ranks) {
  return add_process_set(std::span(ranks.begin(), ranks.size()));
}

void remove_process_set(const ProcessSet& set) {
  const auto engine = session::current_engine("kolo::remove_process_set");
  const int rank = engine->topology().rank;
  const std::string what = fmt::format("remove_process_set on rank {}", rank);
  if (!set.data()) throw InvalidArgument(what + ": the world cannot be removed", "", {rank});
  engine->process_sets().require_usable(set, what, "");
  Descriptor descriptor;
  descriptor.type = OperationType::remove_process_set;
  descriptor.removed = set.id();
  change(*engine, std::move(descriptor));
}

}  // namespace kolo
