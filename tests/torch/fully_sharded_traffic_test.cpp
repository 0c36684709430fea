// SPDX-License-Identifier: Apache-2.0
// FullySharded: what ranks exchange in a step, and how ranks agree on it.
#include "fully_sharded_network.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace kolo::internal::testing_support {
namespace {

/// The operations of one kind to which this rank has contributed.
std::int64_t bytes_in(const Statistics& statistics, std::string_view operation) {
  const auto kind = std::ranges::find(statistics.kinds, operation, &Statistics::Kind::operation);
  return kind == statistics.kinds.end() ? 0 : static_cast<std::int64_t>(kind->bytes);
}

std::int64_t bytes_of(const std::vector<Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

/// A training whose steps can be counted.
class CountedTraining {
 public:
  explicit CountedTraining(const FullyShardedOptions& options = {}) : sharded_(model_, options) {}

  void step(int count) {
    for (int i = 0; i < count; ++i) usual(model_, sharded_, optimizer_, i);
  }
  [[nodiscard]] FullySharded::Counters counters() const { return sharded_.counters(); }

  /// Bytes of this rank's shards: of all units, of the root, and of the last unit.
  struct Shards {
    std::int64_t all = 0;
    std::int64_t root = 0;
    std::int64_t last = 0;
  };
  [[nodiscard]] Shards shards() const {
    Shards shards;
    const std::string last = "block" + std::to_string(model_->blocks.size() - 1) + ".";
    for (const auto& [name, tensor] : sharded_.named_parameters()) {
      const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
      shards.all += bytes;
      if (!name.starts_with("block")) shards.root += bytes;
      if (name.starts_with(last)) shards.last += bytes;
    }
    return shards;
  }

 private:
  ShardedNet model_ = make_net<ShardedNet>();
  FullySharded sharded_;
  optim::AdamW optimizer_{sharded_.parameters(), optim::AdamWOptions(0.01)};
};

using FullyShardedTraffic = TorchTest;

// The first step does not know the order of units, so it gathers the last one again.
TEST_F(FullyShardedTraffic, GathersAllUnitsTwiceButTheRootAndTheLast) {
  CountedTraining training;
  const CountedTraining::Shards shards = training.shards();
  const std::int64_t whole = bytes_of(make_net<Net>()->parameters());
  training.step(1);
  const Statistics before = statistics();
  const FullySharded::Counters counters = training.counters();
  training.step(3);
  const Statistics after = statistics();
  const int exchanges = size() > 1 ? 3 : 0;  // one rank has nothing to gather or reduce
  EXPECT_EQ(bytes_in(after, "allgather") - bytes_in(before, "allgather"),
            exchanges * (2 * shards.all - shards.root - shards.last));
  EXPECT_EQ(bytes_in(after, "reducescatter") - bytes_in(before, "reducescatter"),
            exchanges * whole);
  EXPECT_EQ(training.counters().gathers - counters.gathers, exchanges * (2 * 5 - 2));
  EXPECT_EQ(training.counters().reductions - counters.reductions, 3 * 5);
}

TEST_F(FullyShardedTraffic, GathersOnceIfUnitsStay) {
  CountedTraining training({.reshard_after_forward = false});
  training.step(1);
  const std::int64_t before = bytes_in(statistics(), "allgather");
  training.step(3);
  EXPECT_EQ(bytes_in(statistics(), "allgather") - before,
            size() > 1 ? 3 * training.shards().all : 0);
}

TEST_F(FullyShardedTraffic, ComesFromPlansAfterTenSteps) {
  if (local_size() != size()) GTEST_SKIP() << "plans need ranks that share memory";
  CountedTraining training;
  training.step(10);
  const Statistics before = statistics();
  training.step(20);
  const Statistics after = statistics();
  EXPECT_EQ(after.plan_batches - before.plan_batches, after.batches - before.batches);
}

}  // namespace
}  // namespace kolo::internal::testing_support
