// SPDX-License-Identifier: Apache-2.0
#include "messenger/socket_messenger.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "node/error_codes.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::messenger {
namespace {

constexpr std::size_t max_events = 16;  // per call
// The maximum number of messages that one call hands to the kernel. Encryption needs a buffer for
// each.
constexpr std::size_t max_frames = 8;
// A limit per call, so that a fast peer does not keep others waiting.
constexpr int max_reads = 4;
// Several short messages may arrive with one call. A long payload is received in its place; at most
// its beginning has to be copied.
constexpr std::size_t arrived_bytes = 16384;

// The kernel ends an idle connection to a host that is gone after this time. If data is not
// acknowledged, that takes minutes, but control connections usually notice it earlier. There is no
// limit for data (TCP_USER_TIMEOUT), since a peer that is alive may take long to read.
constexpr std::chrono::seconds max_silence{60};

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

/// The bytes behind the first `skip`, which is counted down.
iovec rest_of(std::span<const std::byte> bytes, std::size_t& skip) {
  const std::size_t left_out = std::min(skip, bytes.size());
  skip -= left_out;
  return {const_cast<std::byte*>(bytes.data()) + left_out, bytes.size() - left_out};
}

epoll_event event_of(int rank, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u32 = static_cast<std::uint32_t>(rank);
  return event;
}

}  // namespace

SocketMessenger::SocketMessenger(int rank, int size, std::vector<transport::Connection> connections,
                                 bool encrypts)
    : ConnectedMessenger(rank, static_cast<std::size_t>(size)),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      not_inherited_(events_.get()),
      links_(static_cast<std::size_t>(size)),
      arrived_(arrived_bytes) {
  if (!events_.valid()) node::throw_system_error("epoll_create1");
  for (transport::Connection& connection : connections) {
    Peer& peer = peer_of(connection.rank);
    Link& link = link_of(peer);
    link.socket = std::move(connection.socket);
    transport::keep_alive(link.socket.get(), max_silence);
    // A child that outlives this process must not keep the connection open.
    link.not_inherited = node::NotInherited(link.socket.get());
    peer.sent = MessageSeal(connection.keys.sent, encrypts);
    peer.received = MessageSeal(connection.keys.received, encrypts);
    peer.connected = true;
    SocketMessenger::await_header(peer);
    epoll_event event = event_of(peer.rank, EPOLLIN);
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, link.socket.get(), &event) != 0)
      node::throw_system_error("epoll_ctl");
  }
}

SocketMessenger::~SocketMessenger() { close(std::chrono::nanoseconds(0)); }

bool SocketMessenger::drive_network() {
  std::array<epoll_event, max_events> events;
  const int count = ::epoll_wait(events_.get(), events.data(), events.size(), 0);
  bool moved = false;
  for (int at = 0; at < count; ++at) {
    const epoll_event& event = events[static_cast<std::size_t>(at)];
    Peer& peer = peer_of(static_cast<int>(event.data.u32));
    if ((event.events & EPOLLOUT) != 0 && peer.connected) {
      link_of(peer).is_full = false;
      flush(peer);
      moved = true;
    }
    if ((event.events & ~EPOLLOUT) != 0 && peer.connected) moved |= read(peer);
  }
  return moved;
}

/// Hands messages to the kernel until none is left or it takes no more.
void SocketMessenger::flush(Peer& peer) {
  Link& link = link_of(peer);
  if (link.is_full || !link.problem.empty()) return;
  do fill_frames(peer);
  while (!link.frames.empty() && write(peer));
}

void SocketMessenger::fill_frames(Peer& peer) {
  std::deque<Frame>& frames = link_of(peer).frames;
  while (frames.size() < max_frames && !peer.outbox.empty()) {
    const Outgoing& next = peer.outbox.front();
    Frame frame{
        .header = {.tag = {}, .header = next.header}, .channel = next.channel, .token = next.token};
    if (next.data != nullptr)
      frame.payload = {next.data, static_cast<std::size_t>(next.header.bytes)};
    seal(peer, frame);
    frames.push_back(std::move(frame));
    peer.outbox.pop_front();
  }
}

void SocketMessenger::seal(Peer& peer, Frame& frame) {
  const std::size_t bytes = frame.payload.size();
  const std::size_t all = bytes + sizeof(MessageSeal::Tag);
  const bool is_encrypted = peer.sent.encrypts() && bytes > 0;
  // The buffer comes first: taking it may fail, and a number must not be used twice.
  if (is_encrypted) frame.sealed = buffers().take(all);
  auto& [tag, header] = frame.header;
  header.consumed = peer.consumed_reported = peer.consumed_here;
  tag = peer.sent.seal_header(std::as_writable_bytes(std::span(&header, 1)));
  peer.sent.advance();
  if (!is_encrypted) return;
  const MessageSeal::Tag its_tag = peer.sent.encrypt(frame.payload, frame.sealed.data());
  peer.sent.advance();
  frame.payload = {frame.sealed.data(), all};
  std::ranges::copy(its_tag, frame.sealed.data() + bytes);
}

/// Makes one call to the kernel. True if it has taken all frames.
bool SocketMessenger::write(Peer& peer) {
  Link& link = link_of(peer);
  std::array<iovec, 2 * max_frames> parts;
  std::size_t count = 0;
  for (const Frame& frame : link.frames) {
    std::size_t skip = frame.sent;
    for (const iovec part :
         {rest_of(std::as_bytes(std::span(&frame.header, 1)), skip), rest_of(frame.payload, skip)})
      if (part.iov_len > 0) parts[count++] = part;
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  ssize_t sent = 0;
  do sent = ::sendmsg(link.socket.get(), &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0 && !would_block(errno)) {
    // The socket stays open, because data that the peer sent before can still be read.
    link.problem = error_text(errno);
    ::shutdown(link.socket.get(), SHUT_RDWR);
    return false;
  }
  if (sent > 0) count_sent(peer, static_cast<std::size_t>(sent));
  link.is_full = !link.frames.empty();
  if (link.is_full != link.is_watched) watch_for_room(peer);
  return !link.is_full;
}

void SocketMessenger::count_sent(Peer& peer, std::size_t bytes) {
  std::deque<Frame>& frames = link_of(peer).frames;
  while (!frames.empty()) {
    Frame& first = frames.front();
    const std::size_t taken = std::min(bytes, first.size() - first.sent);
    first.sent += taken;
    bytes -= taken;
    if (first.sent < first.size()) return;
    finish(peer, first.channel, first.token);
    buffers().give_back(std::move(first.sealed));
    frames.pop_front();
  }
}

/// Makes the epoll descriptor watch for room while the socket is full, and only then.
void SocketMessenger::watch_for_room(const Peer& peer) {
  Link& link = link_of(peer);
  link.is_watched = link.is_full;
  epoll_event event = event_of(peer.rank, EPOLLIN | (link.is_full ? EPOLLOUT : 0U));
  ::epoll_ctl(events_.get(), EPOLL_CTL_MOD, link.socket.get(), &event);
}

void SocketMessenger::await_header(Peer& peer) {
  Link& link = link_of(peer);
  link.is_payload = false;
  link.awaited = {std::as_writable_bytes(std::span(&link.header, 1)), std::span<std::byte>()};
}

void SocketMessenger::await_payload(Peer& peer, std::span<std::byte> payload) {
  Link& link = link_of(peer);
  link.is_payload = true;
  link.payload = payload;
  link.awaited = {
      payload, peer.received.encrypts() ? std::span<std::byte>(link.tag) : std::span<std::byte>()};
}

/// Receives what has arrived, up to a limit. True if there was anything.
bool SocketMessenger::read(Peer& peer) {
  Link& link = link_of(peer);
  for (int reads = 0; reads < max_reads; ++reads) {
    std::array<iovec, 3> parts;
    std::size_t room = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::span part = i < link.awaited.size() ? link.awaited[i] : std::span(arrived_);
      parts[i] = {part.data(), part.size()};
      room += part.size();
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    ssize_t bytes = 0;
    do bytes = ::recvmsg(link.socket.get(), &message, 0);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0 && would_block(errno)) return reads > 0;
    if (bytes <= 0) {
      const std::string reason = bytes < 0 ? error_text(errno) : "it was closed";
      lose(peer, link.problem.empty() ? reason : link.problem);
      return true;
    }
    take_arrived(peer, static_cast<std::size_t>(bytes));
    if (!peer.connected || static_cast<std::size_t>(bytes) < room) return true;
  }
  return true;
}

/// The first of the bytes are in the awaited place, the rest in `arrived_`, which may hold several
/// messages.
void SocketMessenger::take_arrived(Peer& peer, std::size_t bytes) {
  Link& link = link_of(peer);
  for (std::span<std::byte>& part : link.awaited) {
    const std::size_t taken = std::min(bytes, part.size());
    part = part.subspan(taken);
    bytes -= taken;
  }
  std::span rest = std::span(arrived_).first(bytes);
  while (link.awaited[0].empty() && link.awaited[1].empty()) {
    take_message(peer);
    if (!peer.connected) return;
    for (std::span<std::byte>& part : link.awaited) {
      const std::size_t taken = std::min(rest.size(), part.size());
      std::ranges::copy(rest.first(taken), part.begin());
      part = part.subspan(taken);
      rest = rest.subspan(taken);
    }
  }
}

void SocketMessenger::take_message(Peer& peer) {
  Link& link = link_of(peer);
  if (!link.is_payload) {
    auto& [tag, header] = link.header;
    if (!peer.received.open_header(std::as_writable_bytes(std::span(&header, 1)), tag))
      return refuse(peer);
    peer.received.advance();
    return take_header(peer, header, {});
  }
  if (peer.received.encrypts()) {
    if (!peer.received.decrypt(link.payload, link.tag)) return refuse(peer);
    peer.received.advance();
  }
  take_payload(peer);
}

bool SocketMessenger::network_sends(const Peer& peer, const ConnectedChannel& channel) const {
  return std::ranges::any_of(link_of(peer).frames,
                             [&](const Frame& frame) { return frame.channel == &channel; });
}

void SocketMessenger::disconnect(Peer& peer) noexcept {
  Link& link = link_of(peer);
  link.not_inherited = {};
  link.socket = {};
  link.frames.clear();
}

}  // namespace kolo::internal::messenger
