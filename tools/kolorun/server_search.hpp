// SPDX-License-Identifier: Apache-2.0
// How an agent finds the rendezvous server.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/message_stream.hpp"
#include "transport/sockets.hpp"

namespace kolorun {

namespace rendezvous = kolo::internal::rendezvous;
namespace transport = kolo::internal::transport;

/// A server that knows the secret, and has accepted the hello.
struct FoundServer {
  rendezvous::MessageStream connection;
  transport::Endpoint at;
  rendezvous::Welcome welcome;
};

struct ServerSearch {
  const std::vector<transport::Endpoint>& addresses;
  rendezvous::Hello hello;
  rendezvous::Secret secret;
  std::chrono::nanoseconds timeout;
  const std::string& no_server;   // why there is none in this process; `goes_on` may change it
  bool may_be_put_off;            // else each refusal is final
  std::function<bool()> goes_on;  // asked every few seconds at least
  std::function<void(const std::string&)> say;  // gets the reason once if it takes long
};

/// Tries these addresses until the timeout, again and again while nobody listens there, or a server
/// says that it may accept the hello later. None if `goes_on` returns false. Throws
/// kolo::BackendError.
[[nodiscard]] std::optional<FoundServer> find_server(const ServerSearch& search);

}  // namespace kolorun
