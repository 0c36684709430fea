// SPDX-License-Identifier: Apache-2.0
// One connection to a rank of another host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"
#include "transport/socket_stream.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::transport {

/// Messages in order, each in a frame with the session's number. Never blocks. The edge keeps what
/// the network does not take, up to `max_unsent` bytes. If more waits, the other side has long been
/// stuck, and the session cannot continue.
class SocketEdge {
 public:
  /// `socket` is connected and does not block.
  SocketEdge(int rank, node::FileDescriptor socket, std::uint64_t session,
             std::size_t max_unsent = max_unsent_bytes);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int descriptor() const { return stream_.descriptor(); }

  /// Throws BackendError if too much waits. Does nothing once the edge is closed.
  void send(Message message);
  /// Shows that this rank is alive. Neither this nor a goodbye throws if too much waits.
  void send_keepalive() { send(FrameKind::keepalive, {}); }
  /// This rank no longer needs the edge. It must send nothing afterwards.
  void say_goodbye() { send(FrameKind::goodbye, {}); }

  /// The edge sends and reads nothing any more.
  void give_up() { stream_.close(); }

  /// True if bytes have moved. Large amounts take several calls.
  bool write() { return stream_.write(); }
  bool read(const Transport::Receiver& receive);

  [[nodiscard]] bool flushed() const { return stream_.flushed(); }
  /// Given up; or the other side has hung up, or there was an error, and all that came before has
  /// been read.
  [[nodiscard]] bool closed() const { return stream_.closed(); }
  [[nodiscard]] bool received_goodbye() const { return received_goodbye_; }
  /// The first error; "" without errors.
  [[nodiscard]] const std::string& error() const;

 private:
  enum class FrameKind : std::uint32_t { message, keepalive, goodbye };
  /// The bytes of a frame are padded to a multiple of 16, so that messages can be read in place.
  struct alignas(16) Header {
    std::uint64_t session;
    FrameKind kind;
    std::uint32_t bytes;  // of the message, without the padding
  };
  static_assert(sizeof(Header) == 16);

  static std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }
  void send(FrameKind kind, Message message);
  void hand_over(const Transport::Receiver& receive);
  void take(const Header& header, const std::byte* bytes, const Transport::Receiver& receive);

  int rank_;
  SocketStream stream_;
  std::uint64_t session_;
  std::size_t max_unsent_;
  bool received_goodbye_ = false;
  std::string invalid_{};  // an error in the data

  std::vector<std::byte> buffer_;  // bytes [begin_, end_) have come and were not taken yet
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  // A message that is longer than the buffer:
  Header long_header_{};
  Message long_message_{};
  std::size_t missing_ = 0;
};

}  // namespace kolo::internal::transport
