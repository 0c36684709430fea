// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/connection.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "rendezvous/codec.hpp"

namespace kolo::internal::rendezvous {
namespace {

/// Before each message, in the order of bytes of all machines that Kolo supports.
struct FrameHeader {
  std::array<char, 4> mark;
  std::uint32_t bytes;
};
constexpr std::array<char, 4> frame_mark{'K', 'o', 'R', '1'};

// More is unsent only to a process that is stuck.
constexpr std::size_t max_unsent = std::size_t{4} * max_message;

// One connection must not keep the others waiting.
constexpr int max_reads = 16;

}  // namespace

Frame make_frame(const Message& message) {
  const Bytes body = encode(message);
  const FrameHeader header{frame_mark, static_cast<std::uint32_t>(body.size())};
  const auto head = std::as_bytes(std::span(&header, 1));
  auto frame = std::make_shared<Bytes>(head.size() + body.size());
  std::ranges::copy(body, std::ranges::copy(head, frame->begin()).out);
  return frame;
}

Connection::Connection(node::FileDescriptor socket, std::size_t max_bytes)
    : socket_(std::move(socket)), not_inherited_(socket_.get()), max_bytes_(max_bytes) {}

void Connection::send(Frame frame) {
  if (closed_ || broken_) return;
  unsent_ += frame->size();
  if (unsent_ > max_unsent) {
    close("it does not read the data sent to it");
    return;
  }
  outbox_.push_back(std::move(frame));
  write();
}

void Connection::write() {
  while (!outbox_.empty() && !broken_ && !closed_) {
    const Bytes& first = *outbox_.front();
    const ssize_t bytes =
        ::send(socket_.get(), first.data() + written_, first.size() - written_, MSG_NOSIGNAL);
    if (bytes < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // What the other side has sent before can still be read.
      broken_ = true;
      outbox_.clear();
      return;
    }
    written_ += static_cast<std::size_t>(bytes);
    unsent_ -= static_cast<std::size_t>(bytes);
    if (written_ < first.size()) continue;
    outbox_.pop_front();
    written_ = 0;
  }
}

void Connection::read(const std::function<bool(const Message&)>& take) {
  for (int i = 0; i < max_reads; ++i) {
    if (!hand_over(take) || closed_) return;
    const std::size_t before = inbox_.size();
    fill();
    if (inbox_.size() == before) return;
  }
  static_cast<void>(hand_over(take));
}

void Connection::fill() {
  std::array<std::byte, 16384> buffer;
  const ssize_t bytes = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
  if (bytes > 0) {
    inbox_.insert(inbox_.end(), buffer.begin(), buffer.begin() + bytes);
  } else if (bytes == 0) {
    close(inbox_.empty() ? "its connection is closed" : "its connection closed within a message");
  } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    close(fmt::format("its connection failed: {}", std::generic_category().message(errno)));
  }
}

bool Connection::hand_over(const std::function<bool(const Message&)>& take) {
  while (inbox_.size() - taken_ >= sizeof(FrameHeader)) {
    FrameHeader header{};
    std::memcpy(&header, inbox_.data() + taken_, sizeof header);
    if (header.mark != frame_mark || header.bytes > max_bytes_) {
      close("it sent an invalid message");
      return false;
    }
    if (inbox_.size() - taken_ - sizeof header < header.bytes) break;
    const std::span body(inbox_.data() + taken_ + sizeof header, header.bytes);
    taken_ += sizeof header + header.bytes;
    try {
      if (!take(decode(body))) return false;
    } catch (const ProtocolError& error) {
      close(fmt::format("it sent {}", error.what()));
      return false;
    }
  }
  inbox_.erase(inbox_.begin(), inbox_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  return true;
}

void Connection::close(const std::string& reason) {
  if (std::exchange(closed_, true)) return;
  reason_ = reason;
  outbox_.clear();
}

}  // namespace kolo::internal::rendezvous
