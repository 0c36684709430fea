// SPDX-License-Identifier: Apache-2.0
// Sends frames and receives bytes over one non-blocking socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"
#include "node/not_inherited.hpp"

namespace kolo::internal::transport {

/// The body of a frame. Several streams may share it.
using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;

/// Never blocks: the stream keeps frames that the network does not take. A forked child does not
/// inherit the socket. Not thread-safe.
class SocketStream {
 public:
  struct Frame {
    std::array<std::byte, 40> header{};
    std::size_t header_bytes = 0;
    SharedBytes body{};
    std::size_t padding = 0;  // zeros after the body, at most 15
    std::size_t sent = 0;

    [[nodiscard]] std::size_t size() const { return header_bytes + body->size() + padding; }
  };

  /// `socket` is connected and non-blocking.
  explicit SocketStream(node::FileDescriptor socket);

  [[nodiscard]] int descriptor() const { return socket_.get(); }

  /// Does nothing if the stream is closed or sending has failed.
  void send(Frame frame);
  /// Sends as much as the network takes. True if bytes have moved.
  bool write();
  /// Fills `room` with bytes that have arrived and returns their number: 0 if none have arrived or
  /// the stream is closed now.
  [[nodiscard]] std::size_t receive(std::span<std::byte> room);
  /// Stops sending and receiving, and drops unsent frames.
  void close();

  [[nodiscard]] bool flushed() const { return outbox_.empty(); }
  [[nodiscard]] std::size_t unsent() const { return unsent_; }
  /// True after `close`. Also true once the other side has closed the connection, or receiving has
  /// failed, and all data was received. An error in sending does not close the stream.
  [[nodiscard]] bool closed() const { return closed_; }
  /// The errors that ended sending and receiving; "" without an error, such as after a close.
  [[nodiscard]] const std::string& send_error() const { return send_error_; }
  [[nodiscard]] const std::string& receive_error() const { return receive_error_; }

 private:
  [[nodiscard]] bool write_first();

  node::FileDescriptor socket_;
  node::NotInherited not_inherited_;
  std::deque<Frame> outbox_{};
  std::size_t unsent_ = 0;  // bytes in the outbox
  bool closed_ = false;
  std::string send_error_{};  // once set, the stream sends nothing more
  std::string receive_error_{};
};

}  // namespace kolo::internal::transport
