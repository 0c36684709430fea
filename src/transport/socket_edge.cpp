// SPDX-License-Identifier: Apache-2.0
#include "transport/socket_edge.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::internal::transport {
namespace {

constexpr std::size_t buffer_bytes = 64 << 10;
constexpr int max_reads = 16;  // in one call, so that a pass stays short

constexpr std::size_t unit = 16;
constexpr std::array<std::byte, unit> padding{};

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

SocketEdge::SocketEdge(int rank, node::FileDescriptor socket, std::uint64_t session,
                       std::size_t max_unsent)
    : rank_(rank),
      socket_(std::move(socket)),
      not_inherited_(socket_.get()),
      session_(session),
      max_unsent_(max_unsent),
      buffer_(buffer_bytes) {}

void SocketEdge::send(Message message) {
  if (message.size() > std::numeric_limits<std::int32_t>::max())
    throw BackendError("a control message is larger than 2 GiB");
  send(FrameKind::message, std::move(message));
  if (unsent_ > max_unsent_) refuse_unsent(rank_, unsent_);
}

void SocketEdge::send(FrameKind kind, Message message) {
  if (closed_ || write_closed_) return;
  const auto bytes = static_cast<std::uint32_t>(message.size());
  Outgoing& last = outbox_.emplace_back(Outgoing{{session_, kind, bytes}, std::move(message), 0});
  unsent_ += last.size();
  if (outbox_.size() == 1) write();
}

bool SocketEdge::write() {
  bool moved = false;
  while (!outbox_.empty()) {
    Outgoing& first = outbox_.front();
    const std::size_t before = first.sent;
    const bool going = write_first(first);
    if (write_closed_) {
      outbox_.clear();
      unsent_ = 0;
      break;
    }
    moved |= first.sent > before;
    unsent_ -= first.sent - before;
    if (first.sent == first.size()) {
      outbox_.pop_front();
    } else if (!going) {
      break;
    }
  }
  return moved;
}

/// False if the network takes no more for now.
bool SocketEdge::write_first(Outgoing& outgoing) {
  std::array<iovec, 3> parts{};
  std::size_t count = 0;
  std::size_t skip = outgoing.sent;
  const auto add = [&](const void* data, std::size_t bytes) {
    if (skip < bytes)
      parts[count++] = {static_cast<std::byte*>(const_cast<void*>(data)) + skip, bytes - skip};
    skip -= std::min(skip, bytes);
  };
  const std::size_t bytes = outgoing.message.size();
  add(&outgoing.header, sizeof outgoing.header);
  add(outgoing.message.data(), bytes);
  add(padding.data(), padded(bytes) - bytes);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  if (sent >= 0) {
    outgoing.sent += static_cast<std::size_t>(sent);
    return true;
  }
  if (errno == EINTR) return true;
  if (would_block(errno)) return false;
  write_closed_ = true;
  if (error_.empty()) error_ = node::error_text(errno);
  return false;
}

bool SocketEdge::read(const Transport::Receiver& receive) {
  bool moved = false;
  for (int i = 0; i < max_reads && !closed_; ++i) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    const std::size_t room = buffer_.size() - end_;
    const ssize_t bytes = ::recv(socket_.get(), buffer_.data() + end_, room, 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && would_block(errno)) break;
    moved = true;
    if (bytes <= 0) {
      close(bytes < 0 ? node::error_text(errno) : "");
      break;
    }
    end_ += static_cast<std::size_t>(bytes);
    hand_over(receive);
    if (static_cast<std::size_t>(bytes) < room) break;  // no more, or epoll reports it
  }
  return moved;
}

/// What goes to the receiver counts as taken, even if that throws.
void SocketEdge::hand_over(const Transport::Receiver& receive) {
  while (!closed_) {
    if (missing_ > 0) {
      // Whole units, so that what follows stays aligned.
      const std::size_t bytes = std::min(missing_, (end_ - begin_) / unit * unit);
      const auto from = buffer_.begin() + static_cast<std::ptrdiff_t>(begin_);
      long_message_.insert(long_message_.end(), from, from + static_cast<std::ptrdiff_t>(bytes));
      begin_ += bytes;
      missing_ -= bytes;
      if (missing_ > 0) return;
      const Message message = std::exchange(long_message_, {});
      take(long_header_, message.data(), receive);
      continue;
    }
    if (end_ - begin_ < sizeof(Header)) return;
    Header header;
    std::memcpy(&header, buffer_.data() + begin_, sizeof header);
    if (header.session != session_ || header.kind > FrameKind::goodbye) {
      close("it received data that is not a message of this session");
      return;
    }
    const std::size_t whole = sizeof header + padded(header.bytes);
    if (whole > buffer_.size()) {
      long_header_ = header;
      missing_ = padded(header.bytes);
      begin_ += sizeof header;
      continue;
    }
    if (end_ - begin_ < whole) return;
    const std::byte* bytes = buffer_.data() + begin_ + sizeof header;
    begin_ += whole;
    take(header, bytes, receive);
  }
}

void SocketEdge::take(const Header& header, const std::byte* bytes,
                      const Transport::Receiver& receive) {
  switch (header.kind) {
    case FrameKind::message: return receive(rank_, {bytes, header.bytes});
    case FrameKind::keepalive: return;
    case FrameKind::goodbye: received_goodbye_ = true; return;
  }
}

void SocketEdge::close(const std::string& error) {
  closed_ = true;
  if (error_.empty()) error_ = error;
  outbox_.clear();
  unsent_ = 0;
}

}  // namespace kolo::internal::transport
