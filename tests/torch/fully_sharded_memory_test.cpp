// SPDX-License-Identifier: Apache-2.0
// FullySharded: the peak memory of LibTorch's tensors, and the bytes that ranks exchange.
#include "fully_sharded_network.hpp"

#include <cstdint>

#include "tensor_memory.hpp"

namespace kolo::internal::testing_support {
namespace {

constexpr int width = 256;
constexpr int blocks = 12;

std::int64_t bytes_of(const nn::Module& module) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : module.parameters())
    bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

/// The sizes of the parts of the model in bytes.
struct Sizes {
  std::int64_t all;
  std::int64_t block;
  std::int64_t root;
  std::int64_t activations;  // what one forward keeps for backward
};

template <typename Model>
Tensor small_loss(Model& model) {
  return model->forward(data_of(0).narrow(0, 0, 1)).square().mean();
}

Sizes measure_sizes() {
  Net model(width, blocks);
  const std::int64_t all = bytes_of(*model);
  const std::int64_t block = bytes_of(*model->blocks.front());
  const std::int64_t before = TensorMemory::now();
  const Tensor loss = small_loss(model);
  return {.all = all,
          .block = block,
          .root = all - blocks * block,
          .activations = TensorMemory::now() - before};
}

class FullyShardedMemory : public TorchTest {
 protected:
  static void SetUpTestSuite() { TensorMemory::count(); }

  template <typename Model, typename Optimizer>
  static void train(Model& model, Optimizer& optimizer, int steps) {
    for (int step = 0; step < steps; ++step) {
      model->zero_grad(/*set_to_none=*/true);  // LibTorch 1.13's optimizers keep the memory
      small_loss(model).backward();
      optimizer.step();
    }
  }

  static std::int64_t replicated_peak() {
    return TensorMemory::peak_of([] {
      ::torch::manual_seed(3);
      Net model(width, blocks);
      DistributedOptimizer optimizer(optim::AdamW(model->parameters(), optim::AdamWOptions(1e-3)),
                                     model->named_parameters());
      train(model, optimizer, 3);
    });
  }

  static std::int64_t plain_peak() {
    return TensorMemory::peak_of([] {
      ::torch::manual_seed(3);
      Net model(width, blocks);
      optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-3));
      train(model, optimizer, 3);
    });
  }

  static ShardedNet construct() {
    ::torch::manual_seed(3);
    const ConstructSharded guard;
    return ShardedNet(width, blocks);
  }

  static std::int64_t sharded_peak(const FullyShardedOptions& options) {
    return TensorMemory::peak_of([&] {
      ShardedNet model = construct();
      FullySharded sharded(model, options);
      optim::AdamW optimizer(sharded.parameters(), optim::AdamWOptions(1e-3));
      train(model, optimizer, 3);
    });
  }
};

// docs/fully-sharded.md promises this bound. The root stays gathered, and has gradients.
TEST_F(FullyShardedMemory, PeakIsShardsAndFourUnits) {
  const Sizes sizes = measure_sizes();
  const std::int64_t n = size();
  const std::int64_t rest = 3 * sizes.root + 2 * sizes.activations;
  const std::int64_t bound = 4 * sizes.all / n + 4 * sizes.block + 2 * sizes.block / n + rest;
  const std::int64_t peak = sharded_peak({});
  EXPECT_LE(peak, bound);
  // Without a unit ahead, one unit less.
  EXPECT_LE(sharded_peak({.units_ahead = 0}), bound - sizes.block);
  if (size() > 1) {
    EXPECT_LT(peak, replicated_peak());
  }
}

// The shards of one rank are the parameters, and its gradients need no reduction.
TEST_F(FullyShardedMemory, OneRankNeedsNoMoreThanWithout) {
  if (size() > 1) return;
  // Each tensor is rounded up to whole lines of the cache.
  constexpr std::int64_t rounding = 16384;
  EXPECT_LE(sharded_peak({}), plain_peak() + rounding);
}

// It cannot gather what others gather, so it must not wait for them.
TEST_F(FullyShardedMemory, ARankWithoutMemoryEndsThePass) {
  if (size() == 1) return;
  ShardedNet model = construct();
  FullySharded sharded(model);
  small_loss(model).backward();
  int call = 0;
  model->wrap = [&](const auto& block, const Tensor& hidden) {
    const Tensor result = block(hidden);
    if (rank() == 1 && call++ == blocks / 2)
      result.register_hook(
          [](const at::TensorBase& /*gradient*/) { TensorMemory::set_available(false); });
    return result;
  };
  const Tensor loss = small_loss(model);
  if (rank() != 1) {
    EXPECT_THROW(loss.backward(), Error);
    return;
  }
  EXPECT_THROW(loss.backward(), c10::Error);
  TensorMemory::set_available(true);
  shutdown();
}

// The allocation of one reduced gradient fails, and later ones succeed.
TEST_F(FullyShardedMemory, OneFailedAllocationFailsThePass) {
  if (size() == 1) return;
  ShardedNet model = construct();
  FullySharded sharded(model);
  small_loss(model).backward();
  sharded.zero_grad();
  const Tensor loss = small_loss(model);
  if (rank() == 1) {
    const std::int64_t elements =
        reducescatter_rows(model->blocks[1]->up->weight.numel(), rank(), size());
    TensorMemory::fail_once(static_cast<std::size_t>(elements) * sizeof(float));
    EXPECT_THROW(loss.backward(), c10::Error);
  } else {
    EXPECT_THROW(loss.backward(), BackwardFailed);
  }
  sharded.zero_grad();
  small_loss(model).backward();
}

TEST_F(FullyShardedMemory, ConstructionHoldsOneUnit) {
  const Sizes sizes = measure_sizes();
  const std::int64_t peak = TensorMemory::peak_of([] { (void)construct(); });
  EXPECT_LE(peak, sizes.all / size() + sizes.block + sizes.root + sizes.activations);
}

}  // namespace
}  // namespace kolo::internal::testing_support
