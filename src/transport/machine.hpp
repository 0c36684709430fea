// SPDX-License-Identifier: Apache-2.0
// Which processes run on the same machine.
#pragma once

#include <cstdint>
#include <string>

namespace kolo::internal::transport {

/// This host's name.
[[nodiscard]] std::string host_name();
/// Processes with the same name can share memory: they have the same kernel, and the same
/// namespaces of network and processes. Unique to this process if that is hidden from it.
[[nodiscard]] std::string machine_name();
/// Processes with the same number have the same loopback: they have the same kernel and the same
/// namespace of network. 0 if that is hidden from this process.
[[nodiscard]] std::uint64_t loopback_number();

}  // namespace kolo::internal::transport
