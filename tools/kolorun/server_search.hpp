// SPDX-License-Identifier: Apache-2.0
// How an agent finds the rendezvous server.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/connection.hpp"
#include "rendezvous/sockets.hpp"

namespace kolorun {

namespace rendezvous = kolo::internal::rendezvous;

/// A server that knows the secret, and has accepted the greeting.
struct FoundServer {
  rendezvous::Connection connection;
  rendezvous::Endpoint at;
  rendezvous::Welcome welcome;
};

/// Tries these addresses, again and again while nobody listens there, until the timeout. None if
/// `goes_on`, which is asked every few seconds at least, returns false. `say` gets the reason once
/// if it takes long. Throws kolo::BackendError.
[[nodiscard]] std::optional<FoundServer> find_server(
    const std::vector<rendezvous::Endpoint>& addresses, const rendezvous::Hello& hello,
    const rendezvous::Secret& secret, std::chrono::nanoseconds timeout,
    const std::function<bool()>& goes_on, const std::function<void(const std::string&)>& say);

}  // namespace kolorun
