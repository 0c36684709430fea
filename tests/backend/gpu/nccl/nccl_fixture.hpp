// SPDX-License-Identifier: Apache-2.0
// Allreduces of GPU tensors on ranks that are objects of one process.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../gpu_world.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {

using Lengths = std::vector<std::int64_t>;
using Running = std::vector<std::unique_ptr<Execution>>;

inline Descriptor allreduce_of(ReduceOp op) {
  return {.type = OperationType::allreduce, .op = op, .device = gpu_zero};
}

inline Batch batch_of(const Descriptor& kind, int ranks, std::uint64_t sequence) {
  Batch batch{.kind = kind, .tensors = {}, .set = GpuWorld::numbers(ranks), .ranks = {}};
  batch.ranks = batch.set;
  batch.divisor = ranks;
  batch.sequence = sequence;
  return batch;
}

inline double element(int rank, std::size_t tensor, std::int64_t k) {
  return static_cast<double>(1 + rank) * static_cast<double>(1 + (k + std::int64_t(tensor)) % 7);
}

/// The expected sum over ranks 0 to `ranks - 1`.
inline double sum(int ranks, std::size_t tensor, std::int64_t k) {
  return element(0, tensor, k) * ranks * (ranks + 1) / 2;
}

/// A batch of floats on all ranks, from its start to its check.
class Allreduces {
 public:
  Allreduces(GpuWorld& world, const Lengths& lengths) : world_(world), lengths_(lengths) {}

  void start(const Descriptor& kind, std::uint64_t sequence) {
    for (int rank = 0; rank < world_.size(); ++rank) start_on(rank, kind, sequence);
  }
  /// Starts a batch. Joined ranks are in `set` and not in `ranks`.
  void start_among(const std::vector<int>& ranks, const std::vector<int>& set,
                   const Descriptor& kind, std::uint64_t sequence, std::uint64_t joins = 0) {
    for (const int rank : ranks) start_on(rank, kind, sequence, ranks, set, joins);
  }
  void start_on(int rank, const Descriptor& kind, std::uint64_t sequence) {
    start_on(rank, kind, sequence, GpuWorld::numbers(world_.size()),
             GpuWorld::numbers(world_.size()));
  }
  void start_on(int rank, const Descriptor& kind, std::uint64_t sequence,
                const std::vector<int>& ranks, const std::vector<int>& set,
                std::uint64_t joins = 0) {
    auto& tensors =
        tensors_
            .emplace(rank, GpuTensors<float>(world_, rank, lengths_,
                                             [rank](std::size_t i, std::int64_t k) {
                                               return static_cast<float>(element(rank, i, k));
                                             }))
            ->second;
    tensors.set_type(DType::f32);
    Batch batch = batch_of(kind, static_cast<int>(ranks.size()), sequence);
    batch.ranks = ranks;
    batch.set = set;
    batch.joins = joins;
    tensors.add_to(batch);
    running.push_back(world_.rank(rank).backend->start(std::move(batch)));
  }
  [[nodiscard]] bool finish() { return world_.finish(running); }

  void expect_sums(double factor) {
    for (const auto& [rank, tensors] : tensors_)
      for (std::size_t i = 0; i < lengths_.size(); ++i)
        for (std::int64_t k = 0; k < lengths_[i]; ++k)
          ASSERT_FLOAT_EQ(tensors.output(i)[k],
                          static_cast<float>(factor * sum(world_.size(), i, k)))
              << "rank " << rank << ", tensor " << i << ", element " << k;
  }

  Running running{};

 private:
  GpuWorld& world_;
  Lengths lengths_;
  std::multimap<int, GpuTensors<float>> tensors_{};
};

/// Steps all executions until one fails, and returns its message.
inline std::string failure_of(GpuWorld& world, Running& running) {
  try {
    EXPECT_TRUE(world.finish(running)) << "it hangs";
  } catch (const BackendError& error) {
    return error.what();
  }
  return "";
}

}  // namespace kolo::internal::backend
