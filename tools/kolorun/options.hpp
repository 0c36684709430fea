// SPDX-License-Identifier: Apache-2.0
// The command line of kolorun.
#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "binding.hpp"
#include "hosts/hosts.hpp"
#include "output/rank_filter.hpp"
#include "rendezvous/server/server.hpp"
#include "transport/sockets.hpp"

namespace kolorun {

namespace rendezvous = kolo::internal::rendezvous;
namespace transport = kolo::internal::transport;

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Options that a launcher passes to the agent that it starts on a host. --help does not list them.
struct Joining {
  // Possible addresses of the server, as HOST:PORT; "ssh:PORT" is the host from which ssh
  // connected.
  std::vector<std::string> servers{};
  // Name of this host in the launcher's list; empty if no launcher has started this kolorun.
  std::string host{};
  rendezvous::ProcessId number = 0;
  int order = 1;         // position of this host's ranks among those of other hosts
  std::string master{};  // MASTER_ADDR
  std::string job{};     // description of the job by the launcher
};

struct Options {
  rendezvous::ServerOptions server{};
  std::optional<transport::Endpoint> rendezvous{};  // none: all processes are on this host
  std::optional<transport::Endpoint> standby{};     // a server that takes over from the first one
  int slots = 1;                                    // on this host
  std::vector<Host> hosts{};                        // the hosts on which to start agents
  std::string discovery_script{};                   // prints the current hosts
  std::vector<std::string> rsh{};                   // the command that starts an agent on a host
  int fanout = 32;                                  // how many of these start at the same time
  std::string allocation{};                         // the batch job that has given the hosts
  std::string network_interface{};
  std::string wdir{};
  Binding binding = Binding::none;
  bool tag_output = false;
  std::string output_dir{};
  bool tee = false;                      // the output of files appears on the screen, too
  std::optional<RankFilter> filter{};    // the ranks whose output appears there; none: all
  std::vector<std::string> variables{};  // NAME=value
  bool verbose = false;
  std::chrono::nanoseconds grace{};    // from SIGTERM to SIGKILL
  std::chrono::nanoseconds timeout{};  // from the start to SIGTERM; 0: none
  Joining joining{};
  std::vector<std::string> command{};
  std::vector<std::string> warnings{};  // about options that contradict each other
  std::string answer{};  // if not empty, printed instead of running: help, or the version
};

/// Parses `arguments`, without the name of the program. `secret`: the secret of an agent that a
/// launcher has started. Throws UsageError.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments,
                                    const std::optional<rendezvous::Secret>& secret = {});

}  // namespace kolorun
