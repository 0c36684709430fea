// SPDX-License-Identifier: Apache-2.0
#include "data_scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <vector>

#include "backend/batch.hpp"

namespace kolo::internal::simulation {
namespace {

using backend::Batch;
using backend::BatchTensor;

/// Elements repeat after so many, which divides no power of two.
constexpr std::int64_t period = 7;

/// Sums of up to thousands of them are exact.
float element(int rank, std::int64_t index) { return static_cast<float>((index + rank) % period); }

std::array<float, period> sums_of_elements(int ranks) {
  std::array<float, period> sums{};
  for (std::int64_t index = 0; index < period; ++index)
    for (int rank = 0; rank < ranks; ++rank)
      sums[static_cast<std::size_t>(index)] += element(rank, index);
  return sums;
}

std::vector<float> make_elements(int rank, std::int64_t count) {
  std::vector<float> elements(static_cast<std::size_t>(count));
  for (std::int64_t index = 0; index < count; ++index)
    elements[static_cast<std::size_t>(index)] = element(rank, index);
  return elements;
}

void verify(const std::vector<std::vector<float>>& tensors) {
  const auto ranks = static_cast<int>(tensors.size());
  const std::array<float, period> sums = sums_of_elements(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float>& own = tensors[static_cast<std::size_t>(rank)];
    for (std::size_t index = 0; index < own.size(); ++index)
      if (own[index] != sums[index % period])
        throw std::logic_error(fmt::format("element {} of rank {} is {}, not {}", index, rank,
                                           own[index], sums[index % period]));
  }
}

/// Short tensors have fewer slices than a host has ranks.
int slices(const DataCase& one) {
  const std::int64_t elements = one.bytes / 4;
  int slices = 0;
  for (int index = 0; index < one.ranks_per_host; ++index)
    if (backend::slice_of(elements, index, one.ranks_per_host).elements > 0) ++slices;
  return slices;
}

/// Hosts whose ranks divide the data equally. If leaders stand for their hosts, each has a part.
struct EqualParts {
  EqualParts(const DataCase& one, NetworkModel model)
      : elements(one.bytes / 4 / (one.leaders_only ? one.ranks_per_host : 1)),
        cluster(std::vector<int>(static_cast<std::size_t>(one.hosts),
                                 one.leaders_only ? 1 : one.ranks_per_host),
                with_leaders(one, model),
                backend::InterNodeBackend::default_slot_bytes /
                    (one.leaders_only ? one.ranks_per_host : 1)) {}

  std::int64_t elements;
  DataCluster cluster;

 private:
  static NetworkModel with_leaders(const DataCase& one, NetworkModel model) {
    if (one.leaders_only) model.ranks_per_nic = one.ranks_per_host;
    return model;
  }
};

DataCost run(DataCluster& cluster, const Descriptor& kind, const std::vector<BatchTensor>& members,
             bool flat) {
  const Batch batch = cluster.batch_of(kind);
  return cluster.run([&](int rank) {
    Batch own = batch;
    own.tensors.push_back(&members[static_cast<std::size_t>(rank)]);
    // As in a session, batches that hosts cannot share take the other route.
    return flat || !cluster.inter_node(rank).can_execute(own)
               ? cluster.flat(rank).start(std::move(own))
               : cluster.inter_node(rank).start(std::move(own));
  });
}

Descriptor operation(OperationType type) {
  Descriptor kind;
  kind.type = type;
  kind.op = ReduceOp::sum;
  return kind;
}

}  // namespace

DataCost cost_of_allreduce(const DataCase& one, NetworkModel model) {
  std::int64_t slot_bytes = backend::InterNodeBackend::default_slot_bytes;
  std::int64_t elements = one.bytes / 4;
  if (one.leaders_only) {
    model.ranks_per_nic = slices(one);
    slot_bytes /= one.ranks_per_host;
    elements = (elements + model.ranks_per_nic - 1) / model.ranks_per_nic;
  }
  const int simulated = one.leaders_only ? 1 : one.ranks_per_host;
  DataCluster cluster(std::vector<int>(static_cast<std::size_t>(one.hosts), simulated), model,
                      slot_bytes);
  if (one.algorithm) cluster.use(*one.algorithm);
  std::vector<std::vector<float>> tensors;
  std::vector<BatchTensor> members;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    std::vector<float>& tensor = tensors.emplace_back(make_elements(rank, elements));
    members.push_back(
        {.input = tensor.data(), .output = tensor.data(), .dtype = DType::f32, .rows = elements});
  }
  const DataCost cost = run(cluster, operation(OperationType::allreduce), members, one.flat);
  verify(tensors);
  return cost;
}

DataCost cost_of_reducescatter(const DataCase& one, const NetworkModel& model) {
  EqualParts parts(one, model);
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> outputs;
  std::vector<BatchTensor> members;
  const int ranks = parts.cluster.size();
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float>& input = inputs.emplace_back(make_elements(rank, parts.elements));
    std::vector<float>& output = outputs.emplace_back(
        static_cast<std::size_t>(reducescatter_rows(parts.elements, rank, ranks)));
    members.push_back({.input = input.data(),
                       .output = output.data(),
                       .dtype = DType::f32,
                       .rows = parts.elements});
  }
  const DataCost cost =
      run(parts.cluster, operation(OperationType::reducescatter), members, /*flat=*/false);
  const std::array<float, period> sums = sums_of_elements(ranks);
  std::size_t index = 0;
  for (const std::vector<float>& output : outputs)
    for (const float element : output)
      if (element != sums[index++ % period])
        throw std::logic_error(fmt::format("element {} is {}", index - 1, element));
  return cost;
}

DataCost cost_of_allgather(const DataCase& one, const NetworkModel& model) {
  EqualParts parts(one, model);
  const int ranks = parts.cluster.size();
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> outputs(static_cast<std::size_t>(ranks));
  std::vector<BatchTensor> members;
  std::vector<float> expected;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float>& input = inputs.emplace_back(make_elements(rank, parts.elements / ranks));
    expected.insert(expected.end(), input.begin(), input.end());
    members.push_back({.input = input.data(),
                       .dtype = DType::f32,
                       .rows = std::ssize(input),
                       .allocate = [&output = outputs[static_cast<std::size_t>(rank)],
                                    &expected](std::span<const std::int64_t>) -> void* {
                         output.resize(expected.size());
                         return output.data();
                       }});
  }
  const DataCost cost = run(parts.cluster, operation(OperationType::allgather), members, one.flat);
  for (const std::vector<float>& output : outputs)
    if (output != expected) throw std::logic_error("a rank lacks elements of others");
  return cost;
}

DataCost cost_of_broadcast(const DataCase& one, const NetworkModel& model) {
  EqualParts parts(one, model);
  std::vector<std::vector<float>> tensors;
  std::vector<BatchTensor> members;
  for (int rank = 0; rank < parts.cluster.size(); ++rank) {
    std::vector<float>& tensor = tensors.emplace_back(make_elements(rank, parts.elements));
    members.push_back({.input = tensor.data(),
                       .output = tensor.data(),
                       .dtype = DType::f32,
                       .rows = parts.elements});
  }
  Descriptor kind = operation(OperationType::broadcast);
  kind.root = parts.cluster.size() / 2;
  const DataCost cost = run(parts.cluster, kind, members, one.flat);
  for (const std::vector<float>& tensor : tensors)
    if (tensor != make_elements(kind.root, parts.elements))
      throw std::logic_error("a rank lacks elements of the root");
  return cost;
}

double least_bytes(const DataCase& one) {
  return 2.0 * (one.hosts - 1) / one.hosts * static_cast<double>(one.bytes);
}

Time least_time(const DataCase& one, const NetworkModel& model) {
  return time_of(least_bytes(one), model);
}

Time time_of(double bytes, const NetworkModel& model) {
  return Time(static_cast<std::int64_t>(bytes / model.bytes_per_ns));
}

}  // namespace kolo::internal::simulation
