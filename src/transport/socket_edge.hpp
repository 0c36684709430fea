// SPDX-License-Identifier: Apache-2.0
// A connection to one rank on another host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"
#include "transport/frame_tags.hpp"
#include "transport/socket_stream.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::transport {

/// Sends and receives messages in order, each in a frame with a tag. Never blocks. The edge keeps
/// frames that the network does not take, up to `max_unsent` bytes. If more bytes wait, the other
/// side must be stuck, and the session cannot continue. A frame with a wrong tag closes the edge.
class SocketEdge {
 public:
  /// `socket` is connected and non-blocking.
  SocketEdge(int rank, node::FileDescriptor socket, const FrameKeys& keys,
             std::size_t max_unsent = max_unsent_bytes);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int descriptor() const { return stream_.descriptor(); }

  /// Throws BackendError if too many bytes wait. Does nothing once the edge is closed.
  void send(Message message);
  /// Shows that this rank is alive. Unlike `send`, keepalives and goodbyes never throw.
  void send_keepalive() { send(FrameKind::keepalive, {}); }
  /// Announces that this rank no longer needs the edge. It must send nothing afterwards.
  void say_goodbye() { send(FrameKind::goodbye, {}); }

  /// Closes the edge, which sends and reads nothing afterwards.
  void give_up() { stream_.close(); }

  /// True if the network has refused data, which is lost like all that is sent afterwards.
  [[nodiscard]] bool cannot_send() const { return !stream_.send_error().empty(); }
  /// Ends the connection for both sides. The edge closes once it has read what has arrived; what
  /// is still on its way is lost.
  void cut();

  /// Both return true if bytes have moved. Large amounts of data take several calls.
  bool write() { return stream_.write(); }
  bool read(const Transport::Receiver& receive);

  [[nodiscard]] bool flushed() const { return stream_.flushed(); }
  /// True after `give_up`. Also true once the other side has closed the connection, or the
  /// connection has failed, and all data received before has been read.
  [[nodiscard]] bool closed() const { return stream_.closed(); }
  [[nodiscard]] bool received_goodbye() const { return received_goodbye_; }
  /// An error of the socket or in the data; "" without errors.
  [[nodiscard]] const std::string& error() const;

 private:
  enum class FrameKind : std::uint32_t { message, keepalive, goodbye };
  struct Header {
    FrameKind kind;
    std::uint32_t bytes;   // length of the message, without the padding
    HeaderTag header_tag;  // covers the members above
    FrameTag tag;          // covers the first two members and the message
  };
  // Frames are padded to a multiple of this, so that messages can be read in place.
  static constexpr std::size_t unit = 8;
  static_assert(sizeof(Header) == 32 && sizeof(Header) % unit == 0);

  static std::size_t padded(std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }
  [[nodiscard]] static std::span<const std::byte> tagged(const Header& header) {
    return std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_tag));
  }
  void send(FrameKind kind, Message message);
  void hand_over(const Transport::Receiver& receive);
  void refuse();
  void take(const Header& header, const std::byte* bytes, const Transport::Receiver& receive);

  int rank_;
  SocketStream stream_;
  FrameTags sent_tags_;
  FrameTags received_tags_;
  std::size_t max_unsent_;
  bool received_goodbye_ = false;
  std::string invalid_{};  // describes an error in the data

  std::vector<std::byte> buffer_;  // bytes [begin_, end_) have arrived and were not taken yet
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  // The part that has arrived of a message that is longer than the buffer.
  Header long_header_{};
  Message long_message_{};
  std::size_t missing_ = 0;  // bytes, with the padding; 0: no such message is arriving
};

}  // namespace kolo::internal::transport
