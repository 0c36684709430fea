// SPDX-License-Identifier: Apache-2.0
// Messages over one TCP connection. Each message is a frame: a mark, the length, and the bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

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

  void send(SharedBytes message);
  /// Sends as much as the network takes. `read` reports failures.
  void write() { stream_.write(); }
  /// Receives bytes and passes whole messages to `take`, until it returns false.
  void read(const std::function<bool(std::span<const std::byte>)>& take);
  void close(const std::string& reason);

  [[nodiscard]] bool flushed() const { return stream_.flushed(); }
  /// True if no further message will come.
  [[nodiscard]] bool closed() const { return stream_.closed(); }
  /// The reason why the stream is closed: an error, an invalid message, or a close by either side.
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  [[nodiscard]] bool receive();
  [[nodiscard]] bool hand_over(const std::function<bool(std::span<const std::byte>)>& take);

  SocketStream stream_;
  Bounds bounds_;
  std::vector<std::byte> inbox_{};
  std::size_t taken_ = 0;  // bytes at the front of the inbox that `take` has received
  std::string reason_{};
};

}  // namespace kolo::internal::transport
