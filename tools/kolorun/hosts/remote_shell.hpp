// SPDX-License-Identifier: Apache-2.0
// The command that starts an agent on another host: ssh, or what --rsh or a batch system has
// instead.
#pragma once

#include <string>
#include <vector>

namespace kolorun {

/// Adds to `rsh` what starts the agent of `program` on the host. Throws std::runtime_error for a
/// path that no remote shell would understand.
[[nodiscard]] std::vector<std::string> agent_command(const std::vector<std::string>& rsh,
                                                     const std::string& host,
                                                     const std::string& program);

/// True if the command gives an agent the whole environment of this process, including what it has
/// from a login by ssh.
[[nodiscard]] bool passes_environment(const std::vector<std::string>& rsh);

}  // namespace kolorun
