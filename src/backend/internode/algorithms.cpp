// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/algorithms.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <thread>

#include "backend/internode/reduction.hpp"
#include "base/dtype.hpp"
#include "base/failure.hpp"
#include "base/format.hpp"
#include "base/rank_set.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend::internode {
namespace {

// Among more owners, sending a slice whole to all takes longer than sending it twice in sections.
constexpr int max_owners_whole = 8;

// The selection affects the last bits of results, so a small difference in time should not change
// it.
constexpr double worth_it = 0.85;

constexpr int at_once =
    mpi::Exchange::lanes / InterNodeReduction::lanes;  // slices, as in an allreduce
constexpr int rounds = 4;

constexpr std::chrono::milliseconds between_checks{5};
constexpr std::chrono::seconds patience{60};

/// The ranks that measure. Nobody else watches over them yet.
struct Trial {
  mpi::Endpoint& endpoint;
  const std::function<void()>& while_waiting;
  std::chrono::steady_clock::time_point moved_at{};
  std::chrono::steady_clock::time_point checked_at{};

  void step(mpi::Exchange& exchange) {
    const bool moved = exchange.step();
    const auto now = std::chrono::steady_clock::now();
    if (moved) moved_at = now;
    if (moved) return;
    std::this_thread::yield();
    if (now - checked_at < between_checks) return;
    checked_at = now;
    endpoint.messenger.progress();
    if (const Failure* const loss = endpoint.messenger.loss())
      std::rethrow_exception(to_exception(*loss));
    while_waiting();
    if (now - moved_at < patience) return;
    const std::vector<int> silent = exchange.peers();
    throw PeerLeft(
        fmt::format("the algorithms between hosts cannot be measured: nothing has come from the "
                    "ranks {} for {}",
                    to_string(RankSet::of(silent)), patience),
        "", silent);
  }
};

/// The time in seconds to reduce as many slices at once as an allreduce does.
double cross(Trial& trial, const Owners& owners, InterNodeAlgorithm algorithm, std::int64_t bytes) {
  const auto begin = std::chrono::steady_clock::now();
  trial.moved_at = begin;
  mpi::Exchange exchange(trial.endpoint, 0);
  std::vector<std::unique_ptr<InterNodeReduction>> reductions;
  for (int i = 0; i < at_once; ++i) {
    reductions.push_back(make_inter_node_reduction(
        algorithm,
        {exchange, owners, i * InterNodeReduction::lanes, bytes / 4, {.dtype = DType::f32}}));
    std::memset(reductions.back()->input(), 0, static_cast<std::size_t>(bytes));
    reductions.back()->send();
  }
  while (!reductions.empty()) {
    trial.step(exchange);
    std::erase_if(reductions, [](const auto& reduction) { return reduction->advance(); });
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// After the step with distance d, a rank has the greatest value of the 2 d ranks up to itself.
double max_of_all_ranks(Trial& trial, double value) {
  const mpi::Endpoint& endpoint = trial.endpoint;
  mpi::Exchange exchange(trial.endpoint, 1);
  trial.moved_at = std::chrono::steady_clock::now();
  double received = 0.0;
  for (int distance = 1; distance < endpoint.size; distance *= 2) {
    int pending = 0;
    exchange.receive((endpoint.rank + endpoint.size - distance) % endpoint.size, 0,
                     reinterpret_cast<std::byte*>(&received), sizeof received, pending);
    exchange.send((endpoint.rank + distance) % endpoint.size, 0,
                  reinterpret_cast<const std::byte*>(&value), sizeof value, pending);
    // NOLINTNEXTLINE(bugprone-infinite-loop): the exchange counts `pending` down
    while (pending > 0) trial.step(exchange);
    value = std::max(value, received);
  }
  return value;
}

/// The time of the quickest round; the time of a round is that of its slowest rank.
double measure(Trial& trial, const std::optional<Owners>& owners, InterNodeAlgorithm algorithm,
               std::int64_t bytes) {
  double quickest = 0.0;
  for (int round = 0; round < rounds; ++round) {
    double seconds = owners ? cross(trial, *owners, algorithm, bytes) : 0.0;
    seconds = max_of_all_ranks(trial, seconds);
    quickest = round == 0 ? seconds : std::min(quickest, seconds);
  }
  return quickest;
}

}  // namespace

AlgorithmTable::AlgorithmTable(InterNodeAlgorithm algorithm)
    : algorithms_{algorithm, algorithm, algorithm}, forced_(true) {}

AlgorithmTable::AlgorithmTable(int owners, std::span<const std::vector<double>> seconds) {
  const std::vector<InterNodeAlgorithm> algorithms = candidates(owners);
  for (std::size_t size = 0; size < algorithms_.size(); ++size) {
    const auto at = [&](InterNodeAlgorithm algorithm) {
      return seconds[size][static_cast<std::size_t>(std::ranges::find(algorithms, algorithm) -
                                                    algorithms.begin())];
    };
    const InterNodeAlgorithm usually = usual(owners, size);
    const InterNodeAlgorithm best = *std::ranges::min_element(algorithms, {}, at);
    algorithms_[size] = at(best) < worth_it * at(usually) ? best : usually;
  }
}

std::vector<InterNodeAlgorithm> AlgorithmTable::candidates(int owners) {
  using enum InterNodeAlgorithm;
  if (owners == 2) return {};
  if (owners > max_owners_whole) return {halving, ring, doubling};
  return {whole, direct, ring, doubling};
}

InterNodeAlgorithm AlgorithmTable::usual(int owners, std::size_t size) {
  using enum InterNodeAlgorithm;
  if (owners > max_owners_whole) return size == 0 ? doubling : halving;
  return size == 0 ? whole : direct;
}

InterNodeAlgorithm AlgorithmTable::select(int owners, std::int64_t elements, DType wire) const {
  using enum InterNodeAlgorithm;
  if (forced_) return *algorithms_.front();
  // Between two, the network carries as much with either, but half types are shorter as
  // results.
  if (owners == 2) return is_half(wire) ? direct : whole;
  const std::int64_t bytes = elements * signed_size_of(combined_type(wire));
  std::size_t nearest = 0;
  while (nearest + 1 < measured_bytes.size() && bytes > measured_bytes[nearest + 1] / 4) ++nearest;
  const InterNodeAlgorithm usually = usual(owners, nearest);
  const InterNodeAlgorithm algorithm = algorithms_[nearest].value_or(usually);
  // What was measured among few may not suit more.
  return algorithm == whole && owners > max_owners_whole ? usually : algorithm;
}

AlgorithmTable measure_algorithms(mpi::Endpoint& endpoint, const Placement& placement,
                                  const std::function<void()>& while_waiting) {
  const auto hosts = static_cast<int>(placement.hosts.size());
  if (hosts < 3) return {};
  const std::optional<Owners> owners = owners_with(endpoint.rank, placement);
  Trial trial{endpoint, while_waiting};
  std::vector<std::vector<double>> seconds;
  for (const std::int64_t bytes : AlgorithmTable::measured_bytes) {
    seconds.emplace_back();
    for (const InterNodeAlgorithm algorithm : AlgorithmTable::candidates(hosts))
      seconds.back().push_back(measure(trial, owners, algorithm, bytes));
  }
  return {hosts, seconds};
}

}  // namespace kolo::internal::backend::internode
