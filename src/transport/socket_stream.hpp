// SPDX-License-Identifier: Apache-2.0
// Frames and bytes over one socket that does not block.
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

/// A frame's body. Several streams may share one.
using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;

/// Sends frames in order, and receives bytes. Never blocks: frames that the network does not take
/// are kept. A forked child does not have the socket. Not thread-safe.
class SocketStream {
 public:
  struct Frame {
    std::array<std::byte, 16> header{};
    std::size_t header_bytes = 0;
    SharedBytes body{};
    std::size_t padding = 0;  // zeros after the body, at most 15
    std::size_t sent = 0;

    [[nodiscard]] std::size_t size() const { return header_bytes + body->size() + padding; }
  };

  /// `socket` is connected and does not block.
  explicit SocketStream(node::FileDescriptor socket);

  [[nodiscard]] int descriptor() const { return socket_.get(); }

  /// Does nothing if nothing can be sent any more.
  void send(Frame frame);
  /// Sends what the network takes. True if bytes have moved.
  bool write();
  /// Fills `room` with bytes that have arrived. Returns how many; 0 if there are none yet, or if
  /// the stream is closed now.
  [[nodiscard]] std::size_t receive(std::span<std::byte> room);
  /// Nothing is sent or received any more.
  void close();

  [[nodiscard]] bool flushed() const { return outbox_.empty(); }
  [[nodiscard]] std::size_t unsent() const { return unsent_; }
  /// Closed by this side; or by the other side or an error, after all that came before was
  /// received. An error in sending does not close the stream.
  [[nodiscard]] bool closed() const { return closed_; }
  /// Why the stream is closed or takes nothing more; "" if the other side has closed it.
  [[nodiscard]] const std::string& send_error() const { return send_error_; }
  [[nodiscard]] const std::string& receive_error() const { return receive_error_; }

 private:
  [[nodiscard]] bool write_first();

  node::FileDescriptor socket_;
  node::NotInherited not_inherited_;
  std::deque<Frame> outbox_{};
  std::size_t unsent_ = 0;  // bytes in the outbox
  bool closed_ = false;
  std::string send_error_{};  // once set, nothing is sent any more
  std::string receive_error_{};
};

}  // namespace kolo::internal::transport
