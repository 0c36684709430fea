// SPDX-License-Identifier: Apache-2.0
// The choice of the algorithm by which owners reduce a slice between hosts.
#pragma once

#include <cstdint>

#include "kolo/types.hpp"

namespace kolo::internal::backend::internode {

/// All algorithms combine the hosts in the same order, and so give the same bits.
enum class InterNodeAlgorithm : std::uint8_t {
  whole,     ///< Each owner sends its input to every other: one message time. For few owners.
  direct,    ///< Each owner reduces one section and sends it to all: two message times.
  doubling,  ///< Each owner exchanges everything with a few others per step: log2(owners) steps.
  halving,   ///< Each owner exchanges shrinking parts, then collects results the other way.
};

/// With more owners, messages to all at once take longer than a few messages in sequence.
inline constexpr int max_owners_at_once = 8;

/// Selects for at least two owners, and for elements whose results are of type `wire`.
[[nodiscard]] InterNodeAlgorithm select_algorithm(int owners, std::int64_t elements, DType wire);

}  // namespace kolo::internal::backend::internode
