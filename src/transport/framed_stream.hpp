// SPDX-License-Identifier: Apache-2.0
// Messages over one TCP connection. Each message is a frame: a mark, the length, once the sides
// trust each other a tag of these and one of the whole frame, and the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/frame_tags.hpp"
#include "transport/socket_stream.hpp"

namespace kolo::internal::transport {

/// Never blocks. Keeps messages that the network does not take, up to a bound. Not thread-safe.
class FramedStream {
 public:
  struct Bounds {
    std::size_t max_bytes;   // the longest message to receive; a longer one closes the stream
    std::size_t max_unsent;  // closes the stream if exceeded: the other process must be stuck
  };

  /// `socket` is connected and non-blocking.
  FramedStream(node::FileDescriptor socket, const Bounds& bounds)
      : stream_(std::move(socket)), bounds_(bounds) {}

  [[nodiscard]] int descriptor() const { return stream_.descriptor(); }
  void set_max_bytes(std::size_t bytes) { bounds_.max_bytes = bytes; }
  /// From the next frame on, in both directions, each frame has tags. A wrong one closes the
  /// stream.
  void authenticate(const FrameKeys& keys) {
    sent_tags_.emplace(keys.sent);
    received_tags_.emplace(keys.received);
  }

  void send(SharedBytes message) {
    if (closed()) return;
    SocketStream::Frame frame{.header_bytes = sizeof(FrameHeader), .body = std::move(message)};
    const FrameHeader header{frame_mark, static_cast<std::uint32_t>(frame.body->size())};
    std::memcpy(frame.header.data(), &header, sizeof header);
    if (sent_tags_) {
      Tags tags{.header = sent_tags_->header_tag(bytes_of(header))};
      tags.frame = sent_tags_->next(bytes_of(header), *frame.body);
      std::memcpy(frame.header.data() + sizeof header, &tags, sizeof tags);
      frame.header_bytes += sizeof tags;
    }
    if (stream_.unsent() + frame.size() > bounds_.max_unsent)
      return close("it does not read the data sent to it");
    stream_.send(std::move(frame));
  }
  /// Sends as much as the network takes. `read` reports failures.
  void write() { stream_.write(); }
  /// Receives bytes and passes whole messages to `take`, until it returns false.
  void read(const std::function<bool(std::span<const std::byte>)>& take) {
    for (int i = 0; i < max_receives; ++i)
      if (!hand_over(take) || !receive()) return;
    static_cast<void>(hand_over(take));
  }
  void close(const std::string& reason) {
    if (closed()) return;
    stream_.close();
    reason_ = reason;
  }

  [[nodiscard]] bool flushed() const { return stream_.flushed(); }
  /// True if no further message will come.
  [[nodiscard]] bool closed() const { return stream_.closed(); }
  /// The reason why the stream is closed: an error, an invalid message, or a close by either side.
  [[nodiscard]] const std::string& reason() const { return reason_; }
  /// True if the other side has closed the stream in order, after a whole message, and not by a
  /// reset.
  [[nodiscard]] bool has_ended() const { return has_ended_; }

 private:
  /// The header is sent as it lies in memory, since all supported machines have the same byte
  /// order.
  struct FrameHeader {
    std::array<char, 4> mark;
    std::uint32_t bytes;
  };
  static constexpr std::array<char, 4> frame_mark{'K', 'o', 'R', '2'};
  struct Tags {
    HeaderTag header{};
    FrameTag frame{};
  };
  // A limit per call of `read`, so that one busy connection does not starve the others.
  static constexpr int max_receives = 16;

  [[nodiscard]] static std::span<const std::byte> bytes_of(const FrameHeader& header) {
    return std::as_bytes(std::span(&header, 1));
  }

  /// Appends bytes that have arrived to the inbox. False if there are none.
  [[nodiscard]] bool receive() {
    if (closed()) return false;
    std::array<std::byte, 16384> buffer;
    const std::size_t bytes = stream_.receive(buffer);
    inbox_.insert(inbox_.end(), buffer.begin(),
                  buffer.begin() + static_cast<std::ptrdiff_t>(bytes));
    has_ended_ = closed() && stream_.receive_error().empty() && inbox_.empty();
    if (closed())
      reason_ = !stream_.receive_error().empty()
                    ? "its connection failed: " + stream_.receive_error()
                : inbox_.empty() ? "its connection is closed"
                                 : "its connection closed within a message";
    return bytes > 0;
  }
  [[nodiscard]] bool hand_over(const std::function<bool(std::span<const std::byte>)>& take) {
    // A stream may be closed with frames left, which must not pass for the ones before them.
    while (!closed()) {
      // `take` may have authenticated the stream with the frame before.
      const std::size_t before = sizeof(FrameHeader) + (received_tags_ ? sizeof(Tags) : 0);
      const std::size_t arrived = inbox_.size() - taken_;
      if (arrived < sizeof(FrameHeader)) break;
      const std::byte* const at = inbox_.data() + taken_;
      FrameHeader header{};
      Tags tags{};
      std::memcpy(&header, at, sizeof header);
      if (header.mark != frame_mark) return refuse("it sent an invalid message");
      if (arrived < before) break;
      std::memcpy(&tags, at + sizeof header, before - sizeof header);
      if (received_tags_ && !received_tags_->accepts_header(bytes_of(header), tags.header))
        return refuse(altered);
      if (header.bytes > bounds_.max_bytes) return refuse("it sent an invalid message");
      if (arrived - before < header.bytes) break;
      const std::span message(at + before, header.bytes);
      taken_ += before + header.bytes;
      if (received_tags_ && !received_tags_->accepts(bytes_of(header), message, tags.frame))
        return refuse(altered);
      if (!take(message)) return false;
    }
    if (closed()) return false;
    inbox_.erase(inbox_.begin(), inbox_.begin() + static_cast<std::ptrdiff_t>(taken_));
    taken_ = 0;
    return true;
  }

  static constexpr const char* altered =
      "one of its messages was altered, lost or repeated on the way";
  [[nodiscard]] bool refuse(const char* reason) {
    close(reason);
    return false;
  }

  SocketStream stream_;
  Bounds bounds_;
  std::optional<FrameTags> sent_tags_{};
  std::optional<FrameTags> received_tags_{};
  std::vector<std::byte> inbox_{};
  std::size_t taken_ = 0;  // bytes at the front of the inbox that `take` has received
  std::string reason_{};
  bool has_ended_ = false;
};

}  // namespace kolo::internal::transport
