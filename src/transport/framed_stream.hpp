// SPDX-License-Identifier: Apache-2.0
// Messages as bytes over one TCP connection, each in a frame with a mark and its length.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transport/socket_stream.hpp"

namespace kolo::internal::transport {

/// Never blocks. A message that the network does not take is kept, up to a bound. Not thread-safe.
class FramedStream {
 public:
  struct Bounds {
    std::size_t max_bytes;   // of a message that is received; a longer one closes the stream
    std::size_t max_unsent;  // more is unsent only to a process that is stuck
  };

  /// `socket` is connected and does not block.
  FramedStream(node::FileDescriptor socket, const Bounds& bounds)
      : stream_(std::move(socket)), bounds_(bounds) {}

  [[nodiscard]] int descriptor() const { return stream_.descriptor(); }
  void set_max_bytes(std::size_t bytes) { bounds_.max_bytes = bytes; }

  void send(SharedBytes message);
  /// Sends what the network takes. A failure shows in `read`.
  void write() { stream_.write(); }
  /// Receives what has come, and passes on whole messages, until `take` returns false.
  void read(const std::function<bool(std::span<const std::byte>)>& take);
  void close(const std::string& reason);

  [[nodiscard]] bool flushed() const { return stream_.flushed(); }
  /// No further message comes.
  [[nodiscard]] bool closed() const { return stream_.closed(); }
  /// Why the stream is closed: an error, an invalid message, or the other side has closed it.
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  [[nodiscard]] bool receive();
  [[nodiscard]] bool hand_over(const std::function<bool(std::span<const std::byte>)>& take);

  SocketStream stream_;
  Bounds bounds_;
  std::vector<std::byte> inbox_{};
  std::size_t taken_ = 0;  // bytes of the inbox
  std::string reason_{};
};

}  // namespace kolo::internal::transport
