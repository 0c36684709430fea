// SPDX-License-Identifier: Apache-2.0
// The hosts of a job, as the user names them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kolorun {

struct Host {
  std::string name{};  // as ssh takes it; USER@HOST too
  int slots = 1;       // how many processes it can run

  friend bool operator==(const Host&, const Host&) = default;
};

// A host that is named again has the slots of all its mentions. All of them throw UsageError.

/// From "a:4,b,[fd00::1]:2".
[[nodiscard]] std::vector<Host> parse_hosts(std::string_view text);
/// Lines like "a slots=4", "a:4" or "a"; # begins a comment.
[[nodiscard]] std::vector<Host> read_hostfile(const std::string& path);
/// What a discovery script has printed: lines as in a hostfile. A host without a number has
/// `slots`.
[[nodiscard]] std::vector<Host> parse_host_lines(std::string_view text, int slots,
                                                 const std::string& source);

/// Of IPv4 or IPv6.
[[nodiscard]] bool is_address(const std::string& name);
/// Whether the name means the host on which this runs: its own name, localhost, or one of its
/// addresses. Other names are not resolved, which may take long.
[[nodiscard]] bool is_this_host(const std::string& name);

}  // namespace kolorun
