// SPDX-License-Identifier: Apache-2.0
// The memory that a training needs per rank, by formula.
#pragma once

#include <cstdint>
#include <kolo/tensor.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "names.hpp"

namespace perf {

/// LibTorch's optimizers, by the values that each keeps per parameter.
enum class OptimizerKind : std::uint8_t { adamw, adam, adagrad, rmsprop, momentum, sgd };

inline constexpr Names<OptimizerKind, 6> optimizer_names{{
    {OptimizerKind::adamw, "adamw"},
    {OptimizerKind::adam, "adam"},
    {OptimizerKind::adagrad, "adagrad"},
    {OptimizerKind::rmsprop, "rmsprop"},
    {OptimizerKind::momentum, "momentum"},
    {OptimizerKind::sgd, "sgd"},
}};

/// A model in units of a `kolo::FullySharded`, in numbers of parameters.
struct ModelSize {
  std::int64_t all = 0;
  std::int64_t largest = 0;  ///< The largest unit except the root.
  std::int64_t root = 0;     ///< What no other unit has; it stays gathered.
};

/// Bytes per rank for parameters, gradients and the optimizer's state; for `full`, also the most
/// that gathered units and gradients on their way need. Activations are not included.
struct MemoryPlan {
  int ranks = 1;
  std::int64_t replicated = 0;  ///< DistributedOptimizer.
  std::int64_t state = 0;       ///< Sharding::state.
  std::int64_t gradients = 0;   ///< Sharding::state_and_gradients, without gradients in flight.
  std::int64_t full = 0;        ///< FullySharded.
};

[[nodiscard]] MemoryPlan plan_memory(const ModelSize& model, int ranks, kolo::DType dtype,
                                     OptimizerKind optimizer);

/// The size of a model. `which` is a number of parameters such as `124M` or `7B` (powers of 1000),
/// a safetensors file, the index of several or a folder with one, or what `find_gradients` takes.
/// Layers are units: the parameters whose names agree up to the first number, as in
/// `layers.3.weight`. `unit`, if given, is the size of the largest unit. Throws UsageError.
[[nodiscard]] ModelSize find_model_size(const std::string& which,
                                        const std::optional<std::string>& unit);

/// A table with one row for each number of ranks.
[[nodiscard]] std::string describe_memory(const ModelSize& model, const std::vector<int>& ranks,
                                          kolo::DType dtype, OptimizerKind optimizer);

}  // namespace perf
