// SPDX-License-Identifier: Apache-2.0
// The command line of kolorun.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hosts.hpp"
#include "rendezvous/server/server.hpp"
#include "transport/sockets.hpp"

namespace kolorun {

namespace rendezvous = kolo::internal::rendezvous;
namespace transport = kolo::internal::transport;

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a launcher tells the agent that it starts on a host, as options that --help does not show.
struct Joining {
  // Where the server may be, as HOST:PORT; "ssh:PORT" is the host from which ssh came.
  std::vector<std::string> servers{};
  std::string host{};  // as the launcher names it; empty: no launcher has started this kolorun
  rendezvous::ProcessId number = 0;
  int order = 1;         // of its ranks among those of other hosts
  std::string master{};  // MASTER_ADDR
  std::string job{};     // as the launcher describes it
};

struct Options {
  rendezvous::ServerOptions server{};
  std::optional<transport::Endpoint> rendezvous{};  // none: all processes are on this host
  int slots = 1;                                    // of this host
  std::vector<Host> hosts{};                        // on which agents are to be started
  std::string discovery_script{};                   // prints them
  std::vector<std::string> rsh{};                   // by this command
  std::string network_interface{};
  std::string wdir{};
  bool tag_output = false;
  std::string output_dir{};
  std::vector<std::string> variables{};  // NAME=value
  bool verbose = false;
  Joining joining{};
  std::vector<std::string> command{};
  std::string answer{};  // to be printed instead: help, or the version
};

/// `arguments`: without the name of the program. `secret`: of an agent that a launcher has started.
/// Throws UsageError.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments,
                                    const std::optional<rendezvous::Secret>& secret = {});

}  // namespace kolorun
