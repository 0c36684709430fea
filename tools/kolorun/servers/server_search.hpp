// SPDX-License-Identifier: Apache-2.0
// The search of an agent for the rendezvous server.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/message_stream.hpp"
#include "transport/sockets.hpp"

namespace kolorun {

namespace rendezvous = kolo::internal::rendezvous;
namespace transport = kolo::internal::transport;

/// A server that knows the secret and has accepted the agent.
struct FoundServer {
  rendezvous::MessageStream connection;
  transport::Endpoint at;
  rendezvous::Welcome welcome;
};

struct ServerSearch {
  const std::vector<transport::Endpoint>& addresses;
  rendezvous::Hello hello;
  std::optional<rendezvous::Vote> vote{};  // for a standby; it answers once it has taken over
  rendezvous::Secret secret;
  std::chrono::nanoseconds timeout;
  // Why this process has no server; `goes_on` may change the text.
  const std::string& no_server;
  bool may_be_put_off;                          // false: each refusal is final
  std::function<bool()> goes_on;                // called every few seconds at least
  std::function<void(const std::string&)> say;  // gets the reason once if the search takes long
};

/// True if the process that has listened at this address has ended: its host refuses connections. A
/// closed connection proves less, since the server, or somebody between, may have closed only that.
[[nodiscard]] bool has_ended(const transport::SystemAddress& server);

enum class StandbyState : std::uint8_t {
  idle,    // or not there
  guards,  // a job runs that it may take over
  rules,   // it has taken over the job
};

/// Asks the standby at this address. Takes less than a second if nobody answers there.
[[nodiscard]] StandbyState ask_standby(const transport::Endpoint& standby,
                                       const rendezvous::Hello& hello,
                                       const rendezvous::Secret& secret);

/// Tries the addresses in turn until the timeout, also if no server listens there yet, or if a
/// server may accept the agent later. Returns none if `goes_on` returns false. Throws
/// kolo::BackendError.
[[nodiscard]] std::optional<FoundServer> find_server(const ServerSearch& search);

}  // namespace kolorun
