// SPDX-License-Identifier: Apache-2.0
#include "transport/control/socket_edge.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal::transport {
namespace {

constexpr std::size_t buffer_bytes = 64 << 10;
constexpr int max_reads = 16;  // a limit per call, so that one edge does not starve the others

}  // namespace

SocketEdge::SocketEdge(int rank, node::FileDescriptor socket, const FrameKeys& keys,
                       std::size_t max_unsent, std::size_t window)
    : rank_(rank),
      stream_(std::move(socket)),
      sent_tags_(keys.sent),
      received_tags_(keys.received),
      max_unsent_(max_unsent),
      window_(window),
      buffer_(buffer_bytes) {}

const std::string& SocketEdge::error() const {
  if (!stream_.send_error().empty()) return stream_.send_error();
  return invalid_.empty() ? stream_.receive_error() : invalid_;
}

void SocketEdge::send(Message message) {
  if (message.size() > std::numeric_limits<std::int32_t>::max())
    throw BackendError("a control message is larger than 2 GiB");
  put(FrameKind::message, std::move(message));
  const std::size_t unsent = waiting_bytes_ + stream_.unsent();
  if (unsent > max_unsent_) refuse_unsent(rank_, unsent);
}

/// Takes no turn behind waiting messages, since it carries the acknowledgment for which the other
/// side may wait in the same way.
void SocketEdge::send_keepalive() {
  if (is_connected()) send_frame(FrameKind::keepalive, {});
}

void SocketEdge::put(FrameKind kind, Message message) {
  if (is_over()) return;
  waiting_bytes_ += message.size();
  waiting_.push_back({kind, std::move(message)});
  send_waiting();
}

void SocketEdge::send_waiting() {
  while (!waiting_.empty() && is_connected() && unacknowledged_bytes_ < window_) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= next.message.size();
    send_frame(next.kind, std::move(next.message));
  }
}

void SocketEdge::send_frame(FrameKind kind, Message message) {
  Header header{kind, static_cast<std::uint32_t>(message.size()), taken_, {}, {}};
  header.header_tag = sent_tags_.header_tag(tagged(header));
  header.tag = sent_tags_.next(tagged(header), message);
  unannounced_ = 0;
  SocketStream::Frame frame{.header_bytes = sizeof header,
                            .padding = padded(message.size()) - message.size()};
  std::memcpy(frame.header.data(), &header, sizeof header);
  frame.body = std::make_shared<const Message>(std::move(message));
  unacknowledged_bytes_ += frame.size();
  unacknowledged_.push_back(frame);
  stream_.send(std::move(frame));
}

void SocketEdge::acknowledge(std::uint64_t taken) {
  for (; acknowledged_ < taken; ++acknowledged_) {
    unacknowledged_bytes_ -= unacknowledged_.front().size();
    unacknowledged_.pop_front();
  }
}

bool SocketEdge::flushed() const {
  if (is_over()) return true;
  return waiting_.empty() && stream_.flushed() && (is_connected() || unacknowledged_.empty());
}

/// An error means that the other side has ended the connection already.
void SocketEdge::cut() { static_cast<void>(::shutdown(stream_.descriptor(), SHUT_RDWR)); }

void SocketEdge::interrupt() {
  cut();
  stream_.close();
}

void SocketEdge::give_up() {
  gave_up_ = true;
  stream_.close();
  waiting_.clear();
  waiting_bytes_ = 0;
  acknowledge(acknowledged_ + unacknowledged_.size());
}

std::size_t SocketEdge::resume(node::FileDescriptor socket, std::uint64_t taken) {
  acknowledge(taken);
  stream_ = SocketStream(std::move(socket));
  // The other side sends the frame again of which a part has arrived.
  begin_ = end_ = missing_ = 0;
  long_message_.clear();
  unannounced_ = 0;
  const std::size_t again = unacknowledged_.size();
  for (const SocketStream::Frame& frame : unacknowledged_) stream_.send(frame);
  send_waiting();
  return again;
}

bool SocketEdge::read(const Transport::Receiver& receive) {
  bool moved = false;
  for (int i = 0; i < max_reads && !closed(); ++i) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    const std::span room = std::span(buffer_).subspan(end_);
    const std::size_t bytes = stream_.receive(room);
    moved |= bytes > 0 || closed();
    if (bytes == 0) break;
    end_ += bytes;
    hand_over(receive);
    if (bytes < room.size()) break;  // the socket is empty; epoll reports later data
  }
  return moved;
}

/// Passes on the messages in the buffer. `begin_` moves past a message before the receiver gets it,
/// so that the message counts as taken even if the receiver throws.
void SocketEdge::hand_over(const Transport::Receiver& receive) {
  while (!closed()) {
    if (missing_ > 0) {
      // Take whole units, so that the next frame in the buffer stays aligned.
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
    if (!received_tags_.accepts_header(tagged(header), header.header_tag)) return refuse();
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

void SocketEdge::refuse() {
  invalid_ = fmt::format("a frame of rank {} was altered, lost or repeated on the way", rank_);
  stream_.close();
}

void SocketEdge::take(const Header& header, const std::byte* bytes,
                      const Transport::Receiver& receive) {
  if (!received_tags_.accepts(tagged(header), {bytes, header.bytes}, header.tag) ||
      header.acknowledged > acknowledged_ + unacknowledged_.size())
    return refuse();
  ++taken_;
  acknowledge(header.acknowledged);
  send_waiting();
  if (header.kind == FrameKind::message) unannounced_ += sizeof header + header.bytes;
  if (unannounced_ >= window_ / 4) send_keepalive();
  switch (header.kind) {
    case FrameKind::message: return receive(rank_, {bytes, header.bytes});
    case FrameKind::keepalive: return;
    case FrameKind::goodbye: received_goodbye_ = true; return;
  }
}

}  // namespace kolo::internal::transport
