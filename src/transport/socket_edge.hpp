// SPDX-License-Identifier: Apache-2.0
// One connection to a rank of another host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"
#include "node/not_inherited.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::transport {

/// Messages, in order, each in a frame with the session's number. Never blocks. What the network
/// does not take is kept, up to `max_unsent` bytes; beyond it the other side has long been stuck,
/// and the session cannot go on.
class SocketEdge {
 public:
  /// `socket` is connected and does not block.
  SocketEdge(int rank, node::FileDescriptor socket, std::uint64_t session,
             std::size_t max_unsent = max_unsent_bytes);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int descriptor() const { return socket_.get(); }

  /// Throws BackendError for what is too much. Does nothing once the edge is closed.
  void send(Message message);
  /// Shows that this rank is alive. Neither this nor a goodbye throws for what waits already.
  void send_keepalive() { send(FrameKind::keepalive, {}); }
  /// This rank needs the edge no more. Nothing may be sent afterwards.
  void say_goodbye() { send(FrameKind::goodbye, {}); }

  /// Nothing is sent or read any more.
  void give_up() { close(""); }

  /// True if bytes have moved. Large amounts take several calls.
  bool write();
  bool read(const Transport::Receiver& receive);

  [[nodiscard]] bool flushed() const { return outbox_.empty(); }
  /// Given up; or the other side has hung up, or there was an error, and all that came before has
  /// been read.
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] bool received_goodbye() const { return received_goodbye_; }
  /// Why it is closed, if there was an error.
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  enum class FrameKind : std::uint32_t { message, keepalive, goodbye };
  /// On the wire all that follows begins at a multiple of 16 bytes, so that it can be read in
  /// place.
  struct alignas(16) Header {
    std::uint64_t session;
    FrameKind kind;
    std::uint32_t bytes;  // of the message, without what it is padded by
  };
  static_assert(sizeof(Header) == 16);
  struct Outgoing {
    Header header;
    Message message;
    std::size_t sent;  // of both, and the padding
    [[nodiscard]] std::size_t size() const { return sizeof(Header) + padded(message.size()); }
  };

  static std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }
  void send(FrameKind kind, Message message);
  [[nodiscard]] bool write_first(Outgoing& outgoing);
  void hand_over(const Transport::Receiver& receive);
  void take(const Header& header, const std::byte* bytes, const Transport::Receiver& receive);
  void close(const std::string& error);

  int rank_;
  node::FileDescriptor socket_;
  node::NotInherited not_inherited_;  // the socket
  std::uint64_t session_;
  std::size_t max_unsent_;
  std::deque<Outgoing> outbox_{};
  std::size_t unsent_ = 0;     // bytes in the outbox
  bool write_closed_ = false;  // the other side takes nothing more; what it has sent is still read
  bool closed_ = false;
  bool received_goodbye_ = false;
  std::string error_{};

  std::vector<std::byte> buffer_;  // what was received and is in no message yet: [begin_, end_)
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  // Of a message that is longer than the buffer.
  Header long_header_{};
  Message long_message_{};
  std::size_t missing_ = 0;
};

}  // namespace kolo::internal::transport
