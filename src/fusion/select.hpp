// SPDX-License-Identifier: Apache-2.0
// Chooses the agreed operations that are executed as one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/descriptor.hpp"

namespace kolo::internal::fusion {

/// True for alltoalls, string broadcasts, barriers, joins, changes of process sets, operations
/// without tensors, and operations that ask for it. They are executed in batches of one.
[[nodiscard]] bool travels_alone(const Descriptor& descriptor);

/// True if the two operations can share a batch: neither travels alone, and they have the same
/// type, dtype (of a group's first tensor), reduction, root, scales, compression, `average_over`
/// and device.
[[nodiscard]] bool fusible(const Descriptor& a, const Descriptor& b);

/// Maximum number of operations passed over because they do not fit into the rest of a batch. So
/// the work of choosing a batch depends on the number of operations in the batch, not on the number
/// of ready operations.
inline constexpr int max_passed_over = 64;

/// The next batch out of `count` ready operations, as ascending indices: the first operation, and
/// every later one that is fusible with it while the sum of bytes stays within `threshold`. The
/// first is taken whatever its size; up to `max_passed_over` others that do not fit are passed
/// over.
[[nodiscard]] std::vector<std::size_t> select_batch(
    std::size_t count, const std::function<const Descriptor&(std::size_t)>& ready,
    std::int64_t threshold);

}  // namespace kolo::internal::fusion
