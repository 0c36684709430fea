// SPDX-License-Identifier: Apache-2.0
// A rank's messages over its TCP connections with all other ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "messenger/connected_messenger.hpp"
#include "node/file_descriptor.hpp"
#include "node/not_inherited.hpp"
#include "transport/peer_connector.hpp"

namespace kolo::internal::messenger {

/// A message is a header with its tag, its payload, and, on an encrypted connection, the payload's
/// tag. A transfer is complete for its sender once the kernel has taken all bytes.
class SocketMessenger final : public ConnectedMessenger {
 public:
  /// One connection with each other rank.
  SocketMessenger(int rank, int size, std::vector<transport::Connection> connections,
                  bool encrypts);
  ~SocketMessenger() override;

  [[nodiscard]] std::string_view name() const override { return "sockets"; }
  [[nodiscard]] std::vector<int> descriptors() const override { return {events_.get()}; }

 private:
  /// A message that the kernel has not yet taken completely.
  struct Frame {
    TaggedHeader header{};
    std::span<const std::byte> payload{};  // followed by its tag if it is encrypted
    Buffer sealed{};                       // the memory of an encrypted payload
    ConnectedChannel* channel = nullptr;   // null if the frame completes no transfer
    Token token{};
    std::size_t sent = 0;  // bytes

    [[nodiscard]] std::size_t size() const { return sizeof header + payload.size(); }
  };
  struct Link {
    node::FileDescriptor socket{};  // invalid if lost, and for this rank itself
    node::NotInherited not_inherited{};
    std::deque<Frame> frames{};
    bool is_full = false;     // the kernel has no room for more
    bool is_watched = false;  // the epoll descriptor watches for room
    std::string problem{};    // why nothing more can be sent; "" if there is no reason

    TaggedHeader header{};                          // the peer's next header
    bool is_payload = false;                        // a payload comes next
    std::span<std::byte> payload{};                 // the destination of that payload
    MessageSeal::Tag tag{};                         // the tag of that payload, if encrypted
    std::array<std::span<std::byte>, 2> awaited{};  // the rest of the next header or payload
  };

  void flush(Peer& peer) override;
  void await_header(Peer& peer) override;
  void await_payload(Peer& peer, std::span<std::byte> payload) override;
  bool drive_network() override;
  [[nodiscard]] bool network_may_sleep() override { return true; }
  [[nodiscard]] bool network_sends(const Peer& peer,
                                   const ConnectedChannel& channel) const override;
  [[nodiscard]] bool has_sent_all(const Peer& peer) const override {
    return link_of(peer).frames.empty();
  }
  void disconnect(Peer& peer) noexcept override;

  [[nodiscard]] Link& link_of(const Peer& peer) {
    return links_[static_cast<std::size_t>(peer.rank)];
  }
  [[nodiscard]] const Link& link_of(const Peer& peer) const {
    return links_[static_cast<std::size_t>(peer.rank)];
  }
  void fill_frames(Peer& peer);
  void seal(Peer& peer, Frame& frame);
  [[nodiscard]] bool write(Peer& peer);
  void count_sent(Peer& peer, std::size_t bytes);
  void watch_for_room(const Peer& peer);
  [[nodiscard]] bool read(Peer& peer);
  void take_arrived(Peer& peer, std::size_t bytes);
  void take_message(Peer& peer);

  node::FileDescriptor events_;  // an epoll descriptor of all sockets
  node::NotInherited not_inherited_;
  std::vector<Link> links_;         // by rank
  std::vector<std::byte> arrived_;  // what arrives behind the awaited bytes
};

}  // namespace kolo::internal::messenger
