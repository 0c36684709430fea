// SPDX-License-Identifier: Apache-2.0
// The hosts of a job as the user specifies them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kolorun {

struct Host {
  std::string name{};  // a name for ssh, possibly USER@HOST
  int slots = 1;       // max number of processes

  friend bool operator==(const Host&, const Host&) = default;
};

// If a host is listed several times, its slots are added. All of these functions throw UsageError.

/// Adds a host, or its slots to those of the same name.
void add_host(std::vector<Host>& hosts, const Host& host);
/// Parses a list like "a:4,b,[fd00::1]:2".
[[nodiscard]] std::vector<Host> parse_hosts(std::string_view text);
/// Reads lines like "a slots=4", "a:4" or "a"; # begins a comment.
[[nodiscard]] std::vector<Host> read_hostfile(const std::string& path);
/// Parses the output of a discovery script: lines as in a hostfile. A host without a number has
/// `slots` slots.
[[nodiscard]] std::vector<Host> parse_host_lines(std::string_view text, int slots,
                                                 const std::string& source);

/// True for an IPv4 or IPv6 address.
[[nodiscard]] bool is_address(const std::string& name);
/// True if the name means this host: its own name, localhost, or one of its addresses. Other names
/// are not resolved, because that can take long.
[[nodiscard]] bool is_this_host(const std::string& name);

}  // namespace kolorun
