// SPDX-License-Identifier: Apache-2.0
// The choice of the agreed operations that are executed as one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/descriptor.hpp"

namespace kolo::internal::fusion {

/// True if the operation gets a batch of its own: its type does not fuse, it has no tensors, or it
/// asks for one.
[[nodiscard]] bool travels_alone(const Descriptor& descriptor);

/// True if the two can travel as one batch: neither travels alone, and they have the same type,
/// dtype (of a group's first tensor), reduction, root, scales, compression, divisor and device.
[[nodiscard]] bool fusible(const Descriptor& a, const Descriptor& b);

/// Maximum number of operations too large for the rest of a batch that are passed over. It bounds
/// the work for a batch by the operations in the batch, not by those that are ready.
inline constexpr int max_passed_over = 64;

/// The next batch out of `count` operations that are ready, as ascending indices: the first and
/// every later one that is fusible with it, while their bytes stay within `threshold`. The first is
/// taken whatever its size; up to `max_passed_over` others that do not fit are passed over.
[[nodiscard]] std::vector<std::size_t> select_batch(
    std::size_t count, const std::function<const Descriptor&(std::size_t)>& ready,
    std::int64_t threshold);

}  // namespace kolo::internal::fusion
