// SPDX-License-Identifier: Apache-2.0
// Which processors of a host its processes may use: --bind-to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "node/processors.hpp"

namespace kolorun {

namespace node = kolo::internal::node;

enum class Binding : std::uint8_t { none, core, numa };

/// The processors of each of the `count` processes of a host, in the order of their local ranks.
/// `core`: an equal share of the cores, at least one. `numa`: one NUMA node, which several
/// processes share if there are more of them than nodes. `own`: the processors that kolorun itself
/// may use. Throws std::runtime_error if there are too few cores.
[[nodiscard]] std::vector<std::vector<int>> share_processors(Binding binding,
                                                             const node::Processors& host,
                                                             std::span<const int> own, int count);

}  // namespace kolorun
