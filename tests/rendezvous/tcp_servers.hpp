// SPDX-License-Identifier: Apache-2.0
// The server's side of connections, message by message.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "job_secret.hpp"
#include "rendezvous/tcp_rendezvous.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::rendezvous {

using namespace std::chrono_literals;

inline MessageStream accept_client(const node::FileDescriptor& listener) {
  node::FileDescriptor socket;
  while (!socket.valid())
    socket = node::FileDescriptor(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  return MessageStream(std::move(socket));
}

/// Reads until a message of this kind arrives, and returns it.
template <typename Kind>
Kind receive(MessageStream& from) {
  std::optional<Kind> found;
  while (!found && !from.closed()) {
    from.write();
    from.read([&](const Message& message) {
      if (const auto* kind = std::get_if<Kind>(&message)) found = *kind;
      return !found;
    });
    std::this_thread::yield();
  }
  return found.value_or(Kind{});
}

/// The server's side of a handshake, and the client's hello.
inline Hello admit(MessageStream& client, const Secret& secret = make_secret()) {
  transport::Handshake server = make_server(secret);
  client.send(HandshakeStep{server.answer(receive<HandshakeStep>(client).bytes).value()});
  if (!server.answer(receive<HandshakeStep>(client).bytes)) return {};
  client.authenticate(server.keys());
  return receive<Hello>(client);
}

}  // namespace kolo::internal::rendezvous
