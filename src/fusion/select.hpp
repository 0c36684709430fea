// SPDX-License-Identifier: Apache-2.0
// The choice of the agreed operations that are executed as one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/descriptor.hpp"

namespace kolo::internal::fusion {

/// True if the two can travel as one batch: the same type, dtype (of a group's first tensor),
/// reduction, root, scales, compression, divisor and device. Alltoalls, text broadcasts, barriers
/// and operations that ask for it are executed alone.
[[nodiscard]] bool fusible(const Descriptor& a, const Descriptor& b);

/// The next batch out of `ready`, as ascending indices: the first operation and every later one
/// that is fusible with it, while their bytes stay within `threshold`. The first is taken whatever
/// its size; others that do not fit are passed over.
[[nodiscard]] std::vector<std::size_t> select_batch(std::span<const Descriptor* const> ready,
                                                    std::int64_t threshold);

}  // namespace kolo::internal::fusion
