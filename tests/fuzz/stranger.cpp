// SPDX-License-Identifier: Apache-2.0
// The bytes of a connection to the rendezvous server from somebody who has proved nothing.
#include <sys/socket.h>

#include <array>
#include <variant>

#include "node/file_descriptor.hpp"
#include "rendezvous/message_stream.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

using node::FileDescriptor;
using rendezvous::MessageStream;

std::array<FileDescriptor, 2> make_connection() {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0,
          "there is no connection");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

/// Accepts the input if the server reads a message from it.
bool run(Bytes bytes) {
  auto [near, far] = make_connection();
  MessageStream server(std::move(near), rendezvous::max_handshake);
  std::size_t messages = 0;
  while (!server.closed()) {
    // Long inputs do not fit into the connection at once.
    const ssize_t written = ::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
    if (bytes.empty()) far = FileDescriptor();
    server.read([&](const rendezvous::Message&) {
      ++messages;
      return true;
    });
  }
  require(!server.reason().empty(), "a connection is closed without a reason");
  return messages > 0;
}

std::string said(const rendezvous::Message& message) {
  auto [near, far] = make_connection();
  MessageStream client(std::move(near));
  client.send(message);
  client.write();
  std::array<char, 4096> buffer{};
  const ssize_t bytes = ::recv(far.get(), buffer.data(), buffer.size(), 0);
  return bytes < 0 ? std::string() : std::string(buffer.data(), static_cast<std::size_t>(bytes));
}

std::vector<Seed> seeds() {
  const std::string step = said(rendezvous::HandshakeStep{rendezvous::Bytes(24, std::byte{7})});
  return {{"step", step},
          {"steps", step + step},
          {"refusal", said(rendezvous::Refusal{"no", {}})},
          {"keepalive", said(rendezvous::Keepalive{})}};
}

}  // namespace

const Target stranger_target{.name = "stranger", .max_bytes = 4096, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
