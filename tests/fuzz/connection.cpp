// SPDX-License-Identifier: Apache-2.0
// The bytes of a connection from another host.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kolo/error.hpp"
#include "node/file_descriptor.hpp"
#include "target.hpp"
#include "transport/control/socket_edge.hpp"

namespace kolo::internal::fuzz {
namespace {

using node::FileDescriptor;
using transport::Message;
using transport::SocketEdge;

const transport::FrameKeys keys;
constexpr std::size_t most = 4096;

std::pair<FileDescriptor, FileDescriptor> make_connection() {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0,
          "there is no connection");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

struct Heard {
  std::vector<Message> messages{};
  bool goodbye = false;
  bool error = false;
};

/// Writes the right tags, and acknowledges nothing, since nothing was sent. A frame is the kind,
/// the length, the acknowledgment, the tag of these, the tag of the frame, and the message, which
/// is padded.
void repair(std::span<std::uint8_t> bytes) {
  constexpr std::size_t acknowledgment = 8;
  constexpr std::size_t tagged = 16;
  constexpr std::size_t header =
      tagged + sizeof(transport::HeaderTag) + sizeof(transport::FrameTag);
  transport::FrameTags tags(keys.received);
  for (std::span<std::byte> rest = std::as_writable_bytes(bytes); rest.size() >= header;) {
    std::uint32_t length = 0;
    std::memcpy(&length, rest.data() + sizeof length, sizeof length);
    const std::size_t padded = (std::size_t{length} + 7) / 8 * 8;
    if (rest.size() - header < padded) return;
    std::ranges::fill(rest.subspan(acknowledgment, tagged - acknowledgment), std::byte{0});
    const auto header_tag = tags.header_tag(rest.first(tagged));
    const auto tag = tags.next(rest.first(tagged), rest.subspan(header, length));
    std::ranges::copy(header_tag, rest.begin() + tagged);
    std::ranges::copy(tag, rest.begin() + tagged + sizeof header_tag);
    rest = rest.subspan(header + padded);
  }
}

Heard hear(Bytes bytes) {
  auto [near, far] = make_connection();
  SocketEdge edge(1, std::move(near), keys);
  Heard heard;
  while (!edge.closed()) {
    // Long inputs do not fit into the connection at once.
    const ssize_t written = ::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
    if (bytes.empty()) far = FileDescriptor();
    edge.read([&](int rank, std::span<const std::byte> message) {
      require(rank == 1, "a message of nobody");
      heard.messages.emplace_back(message.begin(), message.end());
    });
  }
  heard.goodbye = edge.received_goodbye();
  heard.error = !edge.error().empty();
  return heard;
}

/// The bytes that a rank sends.
std::string said(const std::vector<Message>& messages, bool goodbye) {
  auto [near, far] = make_connection();
  SocketEdge edge(1, std::move(near), keys);
  for (const Message& message : messages) edge.send(message);
  edge.send_keepalive();
  if (goodbye) edge.say_goodbye();
  std::array<char, 2 * most> buffer{};
  const ssize_t bytes = ::read(far.get(), buffer.data(), buffer.size());
  return bytes < 0 ? std::string() : std::string(buffer.data(), static_cast<std::size_t>(bytes));
}

bool run(Bytes bytes) {
  const Heard heard = hear(bytes);
  if (heard.error) return false;
  if (bytes.size() > most) return true;  // it does not fit into a connection at once
  const Heard again = hear(as_input(said(heard.messages, heard.goodbye)));
  require(!again.error && again.messages == heard.messages && again.goodbye == heard.goodbye,
          "messages are others when they are sent and read again");
  return !heard.messages.empty() || heard.goodbye;
}

std::vector<Seed> seeds() {
  const Message text(5, std::byte{'m'});
  const Message even(32, std::byte{'n'});
  return {{"message", said({text}, false)},
          {"messages", said({even, {}, text}, false)},
          {"goodbye", said({text}, true)}};
}

}  // namespace

const Target connection_target{
    .name = "connection", .max_bytes = most, .run = run, .seeds = seeds, .repair = repair};

}  // namespace kolo::internal::fuzz
