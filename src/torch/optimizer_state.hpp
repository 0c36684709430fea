// SPDX-License-Identifier: Apache-2.0
// The state of LibTorch's optimizers by PyTorch's names.
//
// Tensors: "state.<number of the parameter>.<name>", such as "state.0.exp_avg". Metadata: "class",
// and "param_groups", the options of the groups in JSON as in Python's state_dict().
#pragma once

#include <torch/optim/optimizer.h>

#include <optional>
#include <string>

namespace kolo::internal {

/// The bytes of a safetensors file. Nothing for a class other than SGD, Adam, AdamW, RMSprop,
/// Adagrad and the DistributedOptimizer of these, which may have state of its own, and for state
/// that such a file cannot hold.
[[nodiscard]] std::optional<std::string> save_optimizer(const ::torch::optim::Optimizer& optimizer);

/// Throws InvalidArgument for bytes that are not those of an optimizer of this class, with as many
/// groups and parameters of the same shapes; nothing has changed then.
void load_optimizer(const std::string& bytes, ::torch::optim::Optimizer& optimizer);

}  // namespace kolo::internal
