// SPDX-License-Identifier: Apache-2.0
// The units of a model, and which parameters belong to which.
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <string>
#include <vector>

#include "kolo/torch/fully_sharded.hpp"

namespace kolo::internal {

/// A unit of a model before its parameters are divided.
struct ModelUnit {
  std::string name;  // that of the module; "" for the model itself
  detail::ShardedModule* module;
  std::size_t parent;  // the innermost unit that contains it; the model contains itself
  bool contains_units = false;
};

/// A parameter, which counts once under all its names.
struct ModelParameter {
  std::vector<std::string> names;
  ::torch::Tensor tensor;
  std::size_t unit;  // the innermost unit that contains all its uses
};

struct ModelUnits {
  std::vector<ModelUnit> units{};  // the model first
  std::vector<ModelParameter> parameters{};
};

/// Throws InvalidArgument if the model itself is no unit.
[[nodiscard]] ModelUnits units_of(::torch::nn::Module& model);

}  // namespace kolo::internal
