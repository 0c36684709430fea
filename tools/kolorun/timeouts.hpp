// SPDX-License-Identifier: Apache-2.0
// Timeouts that end in an order in which they hide each other.
#pragma once

#include "flags.hpp"
#include "options.hpp"

namespace kolorun {

/// Lets the ranks wait for a silent host for longer than kolorun does, unless KOLO_PEER_TIMEOUT has
/// a value. Adds a warning to `options` for each pair of timeouts in the wrong order.
void order_timeouts(const Flags& flags, Options& options);

}  // namespace kolorun
