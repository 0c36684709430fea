// SPDX-License-Identifier: Apache-2.0
#include "scale.hpp"

#include <algorithm>

#include "world.hpp"

namespace kolo::internal::simulation {
namespace {

Operation operation_for(const Gradient& gradient) {
  Operation operation{gradient.name};
  operation.descriptor.type = OperationType::allreduce;
  operation.descriptor.op = ReduceOp::average;
  operation.descriptor.tensors = {{DType::f32, gradient.shape}};
  return operation;
}

/// One script for all ranks: four steps, of which the first two give names their slots, then the
/// last gradient alone.
Program training(const std::vector<Gradient>& gradients, int ranks, const ClusterModel& model) {
  Program program;
  for (int rank = 0; rank < ranks; ++rank)
    program.settings.node_of.push_back(rank / model.ranks_per_host);
  program.settings.seed = model.seed;
  program.settings.arity = model.arity;
  program.settings.latency_in_host = model.latency_in_host;
  program.settings.latency_between_hosts = model.latency_between_hosts;
  program.settings.cost_of_message = model.cost_of_message;
  program.settings.bytes_per_ns = model.bytes_per_ns;
  program.settings.compute_jitter = model.compute_jitter;
  program.settings.data_bytes_per_ns = 1e18;
  for (const Gradient& gradient : gradients) program.operations.push_back(operation_for(gradient));
  Script& script = program.scripts.emplace_back();
  const std::vector<std::size_t> layers = layers_of(gradients);
  const Time pause = model.backward / static_cast<std::int64_t>(layers.size());
  const auto step = [&](bool spread) {
    int next = static_cast<int>(gradients.size());
    for (const std::size_t count : layers) {
      if (spread) script.push_back({.kind = Act::Kind::compute, .time = pause});
      for (std::size_t i = 0; i < count; ++i)
        script.push_back({.kind = Act::Kind::submit, .what = --next});
    }
    script.push_back({.kind = Act::Kind::wait});
    script.push_back({.kind = Act::Kind::meet});
  };
  step(true);
  step(false);
  step(true);
  script.push_back({.kind = Act::Kind::submit, .what = 0});
  script.push_back({.kind = Act::Kind::wait});
  script.push_back({.kind = Act::Kind::meet});
  script.push_back({.kind = Act::Kind::leave});
  return program;
}

StepCost cost_of(const Phase& phase, int ranks, const char* step) {
  StepCost cost{.ranks = ranks,
                .step = step,
                .root = phase.traffic.front(),
                .batches = phase.batches,
                .tail = phase.ended - phase.submitted,
                .hops = phase.hops};
  for (const Traffic& traffic : phase.traffic) {
    cost.max_messages = std::max(cost.max_messages, traffic.messages());
    cost.max_bytes = std::max(cost.max_bytes, traffic.bytes());
  }
  return cost;
}

}  // namespace

std::vector<std::size_t> layers_of(const std::vector<Gradient>& gradients) {
  std::vector<std::size_t> layers;
  std::string last;
  for (auto gradient = gradients.rbegin(); gradient != gradients.rend(); ++gradient) {
    const std::string layer = gradient->name.substr(0, gradient->name.rfind('.'));
    if (layers.empty() || layer != last) layers.push_back(0);
    ++layers.back();
    last = layer;
  }
  return layers;
}

std::vector<StepCost> cost_of_tree(const std::vector<Gradient>& gradients, int ranks,
                                   const ClusterModel& model) {
  const Program program = training(gradients, ranks, model);
  World world(program);
  world.run();
  return {cost_of(world.phases().at(0), ranks, "first"),
          cost_of(world.phases().at(2), ranks, "steady"),
          cost_of(world.phases().at(3), ranks, "one")};
}

}  // namespace kolo::internal::simulation
