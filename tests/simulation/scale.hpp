// SPDX-License-Identifier: Apache-2.0
// The cost of agreement on the gradients of a training step, counted on simulated ranks, and on a
// star for comparison.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program.hpp"
#include "traffic.hpp"

namespace kolo::internal::simulation {

struct Gradient {
  std::string name;
  Shape shape;
};

/// The cost of one kind of step, over all ranks.
struct StepCost {
  int ranks = 0;
  // "first": names are new; "steady": names repeat; "one": a single tensor.
  std::string step;
  Traffic root{};                 // traffic of rank 0
  std::int64_t max_messages = 0;  // maximum of any rank, sent and received
  std::int64_t max_bytes = 0;
  std::uint64_t batches = 0;
  Time tail{};   // from the last submission of any rank to the last answer of any
  int hops = 0;  // length of the longest chain of messages
};

/// The time of messages, and the time between submissions.
struct ClusterModel {
  int ranks_per_host = 8;
  int arity = 8;
  Time latency_in_host{1000};
  Time latency_between_hosts{5000};
  Time cost_of_message{1000};
  double bytes_per_ns = 10;
  Time backward = std::chrono::milliseconds(100);
  double compute_jitter = 0.1;
  std::uint64_t seed = 1;
};

/// The number of gradients of each layer, from the last layer to the first. Names of a layer are
/// equal up to the last dot.
[[nodiscard]] std::vector<std::size_t> layers_of(const std::vector<Gradient>& gradients);

/// The cost of the tree. Gradients are submitted in reverse order, those of a layer at once, spread
/// over the time of backward. Batches take no time, so that they do not hide the cost of control
/// messages.
[[nodiscard]] std::vector<StepCost> cost_of_tree(const std::vector<Gradient>& gradients, int ranks,
                                                 const ClusterModel& model);

/// The cost of a star, with all ranks directly below rank 0. In cycles of at least a millisecond,
/// every rank sends rank 0 its newly ready gradients, possibly none, and receives those that are
/// ready everywhere.
[[nodiscard]] std::vector<StepCost> cost_of_star(const std::vector<Gradient>& gradients, int ranks,
                                                 const ClusterModel& model);

}  // namespace kolo::internal::simulation
