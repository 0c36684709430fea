// SPDX-License-Identifier: Apache-2.0
#include "transport/framed_stream.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kolo::internal::transport {
namespace {

/// The header is sent as it lies in memory, since all supported machines have the same byte order.
struct FrameHeader {
  std::array<char, 4> mark;
  std::uint32_t bytes;
};
constexpr std::array<char, 4> frame_mark{'K', 'o', 'R', '1'};

// A limit per call of `read`, so that one busy connection does not starve the others.
constexpr int max_receives = 16;

}  // namespace

void FramedStream::send(SharedBytes message) {
  if (closed()) return;
  SocketStream::Frame frame{.header_bytes = sizeof(FrameHeader), .body = std::move(message)};
  const FrameHeader header{frame_mark, static_cast<std::uint32_t>(frame.body->size())};
  std::memcpy(frame.header.data(), &header, sizeof header);
  if (stream_.unsent() + frame.size() > bounds_.max_unsent)
    return close("it does not read the data sent to it");
  stream_.send(std::move(frame));
}

void FramedStream::read(const std::function<bool(std::span<const std::byte>)>& take) {
  for (int i = 0; i < max_receives; ++i)
    if (!hand_over(take) || !receive()) return;
  static_cast<void>(hand_over(take));
}

/// Appends bytes that have arrived to the inbox. False if there are none.
bool FramedStream::receive() {
  if (closed()) return false;
  std::array<std::byte, 16384> buffer;
  const std::size_t bytes = stream_.receive(buffer);
  inbox_.insert(inbox_.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(bytes));
  if (closed())
    reason_ = !stream_.receive_error().empty() ? "its connection failed: " + stream_.receive_error()
              : inbox_.empty()                 ? "its connection is closed"
                                               : "its connection closed within a message";
  return bytes > 0;
}

bool FramedStream::hand_over(const std::function<bool(std::span<const std::byte>)>& take) {
  while (inbox_.size() - taken_ >= sizeof(FrameHeader)) {
    FrameHeader header{};
    std::memcpy(&header, inbox_.data() + taken_, sizeof header);
    if (header.mark != frame_mark || header.bytes > bounds_.max_bytes) {
      close("it sent an invalid message");
      return false;
    }
    if (inbox_.size() - taken_ - sizeof header < header.bytes) break;
    const std::span message(inbox_.data() + taken_ + sizeof header, header.bytes);
    taken_ += sizeof header + header.bytes;
    if (!take(message) || closed()) return false;
  }
  inbox_.erase(inbox_.begin(), inbox_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  return true;
}

void FramedStream::close(const std::string& reason) {
  if (closed()) return;
  stream_.close();
  reason_ = reason;
}

}  // namespace kolo::internal::transport
