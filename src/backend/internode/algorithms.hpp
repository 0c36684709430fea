// SPDX-License-Identifier: Apache-2.0
// The choice of the algorithm that reduces a slice between hosts.
#pragma once

#include <cstdint>

#include "kolo/types.hpp"

namespace kolo::internal::backend::internode {

/// All of them combine the hosts in the same order, with the same bits.
enum class InterNodeAlgorithm : std::uint8_t {
  whole,   ///< Each owner sends its input to each other: the time of one message. Few owners only.
  direct,  ///< Each reduces a section for all: the time of two messages, sent to all at once.
  doubling,  ///< Each exchanges all with a few owners after others: log2 of the owners times.
  halving,   ///< Each exchanges ever shorter parts with ever fewer others, and the results back.
};

/// Among more owners, messages to all at once take longer than a few after one another.
inline constexpr int max_owners_at_once = 8;

/// For so many owners, at least two, and elements, whose results are of type `wire`.
[[nodiscard]] InterNodeAlgorithm select_algorithm(int owners, std::int64_t elements, DType wire);

}  // namespace kolo::internal::backend::internode
