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

/// One kind of step, as all ranks together made it.
struct StepCost {
  int ranks = 0;
  std::string step;  // "first": names are new; "steady": they come again; "one": of a single tensor
  Traffic root{};    // traffic of rank 0
  std::int64_t max_messages = 0;  // maximum of any rank, sent and received
  std::int64_t max_bytes = 0;
  std::uint64_t batches = 0;
  Time tail{};   // from the last submission of any rank to the last answer of any
  int hops = 0;  // messages one after another
};

/// How long messages take, and what lies between submissions.
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

/// How many gradients each layer has, from the last layer to the first. A layer's names are the
/// same up to the last dot.
[[nodiscard]] std::vector<std::size_t> layers_of(const std::vector<Gradient>& gradients);

/// The gradients come in reverse order, those of a layer at once, spread over the time of backward.
/// Batches cost no time, so that nothing hides what the control messages cost.
[[nodiscard]] std::vector<StepCost> cost_of_tree(const std::vector<Gradient>& gradients, int ranks,
                                                 const ClusterModel& model);

/// All ranks under rank 0. In cycles of at least a millisecond, in step, every rank sends it what
/// has become ready, be it nothing, and gets from it what is ready everywhere.
[[nodiscard]] std::vector<StepCost> cost_of_star(const std::vector<Gradient>& gradients, int ranks,
                                                 const ClusterModel& model);

}  // namespace kolo::internal::simulation
