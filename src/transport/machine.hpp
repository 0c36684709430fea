// SPDX-License-Identifier: Apache-2.0
// Identifies the machine of a process, to find out which processes share one.
#pragma once

#include <cstdint>
#include <string>

namespace kolo::internal::transport {

/// This host's name.
[[nodiscard]] std::string host_name();
/// Processes with the same name can share memory: they run on the same kernel, in the same network
/// and PID namespaces. If these are hidden from this process, the name is unique to the process.
[[nodiscard]] std::string machine_name();
/// Processes with the same number share the loopback interface: they run on the same kernel, in the
/// same network namespace. 0 if these are hidden from this process.
[[nodiscard]] std::uint64_t loopback_number();

}  // namespace kolo::internal::transport
