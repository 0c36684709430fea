// SPDX-License-Identifier: Apache-2.0
// The node of the autograd graph that receives the gradients of a unit.
#pragma once

#include <memory>

#include "torch/sharded/sharded_unit.hpp"

namespace kolo::internal {

/// A node that gives its gradients to the unit and its listener, as long as they live. It has the
/// highest priority, as the accumulation of a leaf's gradient has: autograd runs it as soon as the
/// last gradient of the unit has arrived.
[[nodiscard]] ShardedUnit::NodePointer make_unit_node(const std::weak_ptr<ShardedUnit>& unit);

}  // namespace kolo::internal
