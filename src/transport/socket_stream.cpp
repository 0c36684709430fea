// SPDX-License-Identifier: Apache-2.0
#include "transport/socket_stream.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "node/error_codes.hpp"

namespace kolo::internal::transport {
namespace {

constexpr std::array<std::byte, 16> zeros{};

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

SocketStream::SocketStream(node::FileDescriptor socket)
    : socket_(std::move(socket)), not_inherited_(socket_.get()) {}

void SocketStream::send(Frame frame) {
  if (closed_ || !send_error_.empty()) return;
  unsent_ += frame.size();
  outbox_.push_back(std::move(frame));
  if (outbox_.size() == 1) write();
}

bool SocketStream::write() {
  const std::size_t before = unsent_;
  while (!outbox_.empty() && write_first()) {
    if (outbox_.front().sent == outbox_.front().size()) outbox_.pop_front();
  }
  if (send_error_.empty()) return unsent_ < before;
  // Only sending has failed. Data that the other side sent before can still be received, so the
  // stream stays open.
  outbox_.clear();
  unsent_ = 0;
  return false;
}

/// Sends a part of the first frame. False if the socket is full or sending has failed.
bool SocketStream::write_first() {
  Frame& frame = outbox_.front();
  std::array<iovec, 3> parts{};
  std::size_t count = 0;
  std::size_t skip = frame.sent;
  const auto add = [&](const std::byte* data, std::size_t bytes) {
    if (skip < bytes) parts[count++] = {const_cast<std::byte*>(data) + skip, bytes - skip};
    skip -= std::min(skip, bytes);
  };
  add(frame.header.data(), frame.header_bytes);
  add(frame.body->data(), frame.body->size());
  add(zeros.data(), frame.padding);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  if (sent >= 0) {
    frame.sent += static_cast<std::size_t>(sent);
    unsent_ -= static_cast<std::size_t>(sent);
    return true;
  }
  if (errno == EINTR) return true;
  if (!would_block(errno)) send_error_ = error_text(errno);
  return false;
}

std::size_t SocketStream::receive(std::span<std::byte> room) {
  if (closed_) return 0;
  ssize_t bytes = 0;
  do bytes = ::recv(socket_.get(), room.data(), room.size(), 0);
  while (bytes < 0 && errno == EINTR);
  if (bytes > 0) return static_cast<std::size_t>(bytes);
  if (bytes < 0 && would_block(errno)) return 0;
  if (bytes < 0) receive_error_ = error_text(errno);
  close();
  return 0;
}

void SocketStream::close() {
  closed_ = true;
  outbox_.clear();
  unsent_ = 0;
}

}  // namespace kolo::internal::transport
