// SPDX-License-Identifier: Apache-2.0
// A connection to one rank on another host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"
#include "transport/frame_tags.hpp"
#include "transport/socket_stream.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::transport {

/// Sends and receives messages in order, each in a frame with a tag. Never blocks. A frame with a
/// wrong tag closes the edge.
///
/// The edge keeps each frame until the other side has acknowledged it, so that it can go on over
/// another connection (`resume`). Every frame carries an acknowledgment. A side with nothing to
/// say sends a keepalive after a quarter of the window. While a window of bytes is not
/// acknowledged, or the connection is broken, further messages wait, up to `max_unsent` bytes. If
/// more wait, the other side must be stuck, and the session cannot continue.
class SocketEdge {
 public:
  /// About as much as a socket takes, so the window rarely delays a message.
  static constexpr std::size_t default_window = std::size_t{4} << 20;

  /// `socket` is connected and non-blocking.
  SocketEdge(int rank, node::FileDescriptor socket, const FrameKeys& keys,
             std::size_t max_unsent = max_unsent_bytes, std::size_t window = default_window);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int descriptor() const { return stream_.descriptor(); }

  /// Throws BackendError if too many bytes wait. Does nothing once the edge is over.
  void send(Message message);
  /// Shows that this rank is alive. Unlike `send`, keepalives and goodbyes never throw. Does
  /// nothing while the connection is broken.
  void send_keepalive();
  /// Announces that this rank no longer needs the edge. It must send nothing afterwards.
  void say_goodbye() { put(FrameKind::goodbye, {}); }

  /// Closes the edge for good. It sends and reads nothing afterwards.
  void give_up();

  /// True if the network has refused data.
  [[nodiscard]] bool cannot_send() const { return !stream_.send_error().empty(); }
  /// Ends the connection for both sides. The edge closes once it has read what has arrived; what
  /// is still on its way is lost.
  void cut();

  /// Both return true if bytes have moved. Large amounts of data take several calls.
  bool write() { return stream_.write(); }
  bool read(const Transport::Receiver& receive);

  /// True if the socket has to take more data.
  [[nodiscard]] bool needs_room() const { return !stream_.flushed(); }
  /// True if the network has taken all messages, or the edge is over. While the connection is
  /// broken, messages that are not acknowledged count as not taken.
  [[nodiscard]] bool flushed() const;
  /// True once this side or the other has closed the connection, or it has failed, and all data
  /// received before has been read.
  [[nodiscard]] bool closed() const { return stream_.closed(); }
  /// True if the connection is closed, and another one may take its place: neither side has said
  /// goodbye or given up, and no frame was wrong.
  [[nodiscard]] bool is_broken() const {
    return stream_.closed() && !gave_up_ && invalid_.empty() && !received_goodbye_;
  }
  [[nodiscard]] bool received_goodbye() const { return received_goodbye_; }
  /// An error of the socket or in the data; "" without errors.
  [[nodiscard]] const std::string& error() const;

  /// Ends the connection at once, so that another one can take its place.
  void interrupt();
  /// The number of frames that this side has taken over all its connections.
  [[nodiscard]] std::uint64_t taken() const { return taken_; }
  /// True if the other side can have taken this number of frames.
  [[nodiscard]] bool can_resume(std::uint64_t taken) const {
    return taken >= acknowledged_ && taken <= acknowledged_ + unacknowledged_.size();
  }
  /// Goes on over another connection, whose other side has taken this number of frames. Sends the
  /// later ones again, and returns their number. The present connection must be closed.
  std::size_t resume(node::FileDescriptor socket, std::uint64_t taken);

 private:
  enum class FrameKind : std::uint32_t { message, keepalive, goodbye };
  struct Header {
    FrameKind kind;
    std::uint32_t bytes;         // length of the message, without the padding
    std::uint64_t acknowledged;  // the number of frames that the sender has taken
    HeaderTag header_tag;        // covers the members above
    FrameTag tag;                // covers the first three members and the message
  };
  // Frames are padded to a multiple of this, so that messages can be read in place.
  static constexpr std::size_t unit = 8;
  static_assert(sizeof(Header) == 40 && sizeof(Header) % unit == 0);

  struct Waiting {
    FrameKind kind;
    Message message;
  };

  static std::size_t padded(std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }
  [[nodiscard]] static std::span<const std::byte> tagged(const Header& header) {
    return std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_tag));
  }
  [[nodiscard]] bool is_over() const { return closed() && !is_broken(); }
  [[nodiscard]] bool is_connected() const { return !closed() && !cannot_send(); }
  void put(FrameKind kind, Message message);
  void send_waiting();
  void send_frame(FrameKind kind, Message message);
  void acknowledge(std::uint64_t taken);
  void hand_over(const Transport::Receiver& receive);
  void refuse();
  void take(const Header& header, const std::byte* bytes, const Transport::Receiver& receive);

  int rank_;
  SocketStream stream_;
  FrameTags sent_tags_;
  FrameTags received_tags_;
  std::size_t max_unsent_;
  std::size_t window_;
  bool gave_up_ = false;
  bool received_goodbye_ = false;
  std::string invalid_{};  // describes an error in the data

  std::deque<Waiting> waiting_{};  // messages that are no frames yet
  std::size_t waiting_bytes_ = 0;
  std::deque<SocketStream::Frame> unacknowledged_{};  // sent, or about to be
  std::size_t unacknowledged_bytes_ = 0;
  std::uint64_t acknowledged_ = 0;  // the number of frames before them
  std::uint64_t taken_ = 0;
  std::size_t unannounced_ = 0;  // bytes taken since the last acknowledgment was sent

  std::vector<std::byte> buffer_;  // bytes [begin_, end_) have arrived and were not taken yet
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  // The part that has arrived of a message that is longer than the buffer.
  Header long_header_{};
  Message long_message_{};
  std::size_t missing_ = 0;  // bytes, with the padding; 0: no such message is arriving
};

}  // namespace kolo::internal::transport
