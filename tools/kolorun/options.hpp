// SPDX-License-Identifier: Apache-2.0
// The command line of kolorun.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/server.hpp"
#include "rendezvous/sockets.hpp"

namespace kolorun {

namespace rendezvous = kolo::internal::rendezvous;

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Options {
  rendezvous::ServerOptions server{};
  std::optional<rendezvous::Endpoint> rendezvous{};  // none: all processes are on this host
  bool has_secret = false;                           // from a file
  int slots = 1;                                     // of this host
  bool tag_output = false;
  std::string output_dir{};
  std::vector<std::string> variables{};  // NAME=value
  bool verbose = false;
  std::vector<std::string> command{};
  std::string answer{};  // to be printed instead: help, or the version
};

/// Throws UsageError.
[[nodiscard]] Options parse_options(int argc, const char* const* argv);

}  // namespace kolorun
