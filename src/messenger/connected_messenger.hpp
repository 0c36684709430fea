// SPDX-License-Identifier: Apache-2.0
// Messages over one connection with each other rank, whatever carries the bytes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messenger/buffer_pool.hpp"
#include "messenger/inbox.hpp"
#include "messenger/message_seal.hpp"
#include "messenger/messenger.hpp"

namespace kolo::internal::messenger {

class ConnectedMessenger;

class ConnectedChannel : public Channel {
 public:
  explicit ConnectedChannel(ConnectedMessenger& messenger) : messenger_(messenger) {}

  void send(int peer, Tag tag, const std::byte* data, std::int64_t bytes, Token token) override;
  void receive(int peer, Tag tag, std::byte* data, std::int64_t bytes, Token token) override;
  void progress(std::vector<Token>& done) override;

 private:
  friend class ConnectedMessenger;

  ConnectedMessenger& messenger_;
  std::vector<Token> done_{};
  int under_way_ = 0;  // transfers of the channel
};

/// A message is an authentication tag, the header that it protects, and a payload, which is
/// received directly into its destination.
///
/// If no receive waits for a message, the receiver stores it, so that messages with other message
/// tags can overtake it. It stores at most a window of bytes per sender; a message that does not
/// fit the rest of the window is only announced, and sent once the receiver asks for it. With few
/// ranks the window is larger, since more than 4 MiB may be in flight to a distant rank.
///
/// If a transfer fails, the peer counts as lost.
class ConnectedMessenger : public Messenger {
 public:
  /// The window in bytes for each sender, in a session of `ranks` ranks.
  static constexpr std::int64_t window_among(int ranks) {
    return std::clamp(64 / ranks, 4, 16) * (std::int64_t{1} << 20);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(peers_.size()); }
  [[nodiscard]] Tag tag_count() const override { return Tag{1} << 62; }
  [[nodiscard]] Channel& open() override;
  [[nodiscard]] bool release(Channel& channel) noexcept override;
  bool progress() override;
  [[nodiscard]] bool may_sleep() override;
  [[nodiscard]] bool uses_memory() const override { return under_way_ > 0 && !closed_; }
  [[nodiscard]] const Failure* loss() const override;
  void close(std::chrono::nanoseconds patience) noexcept override;

 protected:
  enum class Kind : std::uint32_t {
    data,      // the payload follows
    announce,  // a payload with this id is ready to be sent
    grant,     // asks for the payload with this id
    payload,   // an announced payload follows
    consumed,  // reports consumed bytes, which opens the window of the side that receives this
    goodbye,   // the side that sends this neither sends nor needs anything more
  };
  /// The wire format. All ranks run on the same architecture.
  struct Header {
    Kind kind;
    std::uint32_t id;
    Tag tag;
    std::int64_t bytes;  // size of the payload
    std::int64_t
        consumed;  // bytes of unannounced payloads, in total, that the sender of this has consumed
  };
  static_assert(sizeof(Header) == 32);
  struct TaggedHeader {
    MessageSeal::Tag tag;
    Header header;
  };
  static_assert(sizeof(TaggedHeader) == sizeof(MessageSeal::Tag) + sizeof(Header));

  struct Outgoing {
    Header header;
    const std::byte* data;      // null if there is no payload
    ConnectedChannel* channel;  // null if it completes no transfer
    Token token;
  };
  /// An announced payload that the receiver has not asked for yet.
  struct Offer {
    std::uint32_t id;
    const std::byte* data;
    std::int64_t bytes;
    ConnectedChannel* channel;
    Token token;
  };
  struct Peer {
    int rank = -1;
    bool connected = false;  // false once lost, and for this rank itself
    bool said_goodbye = false;
    int under_way = 0;       // unfinished transfers with this peer
    MessageSeal sent{};      // seals this rank's messages
    MessageSeal received{};  // opens the peer's messages
    Inbox inbox{};
    std::optional<Receive> target{};    // the destination of the next payload
    Arrival* arriving = nullptr;        // the destination if no receive waits
    std::int64_t arriving_unasked = 0;  // size of the arriving payload if unannounced
    std::deque<Outgoing> outbox{};      // in order, until the network takes them
    std::vector<Offer> offers{};
    std::uint32_t next_id = 0;
    std::int64_t sent_unasked = 0;
    std::int64_t consumed_there = 0;
    std::int64_t consumed_here = 0;
    std::int64_t consumed_reported = 0;
  };

  ConnectedMessenger(int rank, std::size_t ranks);

  [[nodiscard]] std::vector<Peer>& peers() { return peers_; }
  [[nodiscard]] Peer& peer_of(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] BufferPool& buffers() { return buffers_; }

  /// A derived class calls these as the network proceeds.
  /// @{
  /// The peer's next header has arrived. `content`: its payload if that came with it, otherwise
  /// empty.
  void take_header(Peer& peer, const Header& header, std::span<const std::byte> content);
  /// The payload that `await_payload` asked for has arrived.
  void take_payload(Peer& peer);
  /// Ends a transfer. Does nothing if `channel` is null.
  void finish(Peer& peer, ConnectedChannel* channel, Token token);
  /// The connection has failed.
  void lose(Peer& peer, const std::string& reason);
  /// A message is not the peer's next one.
  void refuse(Peer& peer);
  /// @}

  /// A derived class implements these.
  /// @{
  /// Sends as much of the outbox as the network takes. The rest leaves in `drive_network`.
  virtual void flush(Peer& peer) = 0;
  /// The peer's next message is a header.
  virtual void await_header(Peer& peer) = 0;
  /// The peer's next message is a payload, which belongs here.
  virtual void await_payload(Peer& peer, std::span<std::byte> payload) = 0;
  /// True if anything moved.
  virtual bool drive_network() = 0;
  /// Looks for the loss of peers. False if there is work, or if nothing would signal new work.
  [[nodiscard]] virtual bool network_may_sleep() = 0;
  /// True if the network is sending for the channel what has left the outbox.
  [[nodiscard]] virtual bool network_sends(const Peer& peer,
                                           const ConnectedChannel& channel) const = 0;
  /// True if the network has taken everything that has left the outbox.
  [[nodiscard]] virtual bool has_sent_all(const Peer& peer) const = 0;
  /// Closes the connection. The network then accesses no memory for this peer any more.
  virtual void disconnect(Peer& peer) noexcept = 0;
  /// Called once all connections are closed.
  virtual void close_network() noexcept {}
  /// @}

 private:
  friend class ConnectedChannel;

  void send(ConnectedChannel& channel, int rank, Tag tag, const std::byte* data, std::int64_t bytes,
            Token token);
  void receive(const Receive& receive, int rank);
  bool drive();
  void take_inline(Peer& peer, const Header& header, std::span<const std::byte> data);
  void expect_payload(Peer& peer, const Header& header);
  void take_announcement(Peer& peer, const Header& header);
  void take_grant(Peer& peer, std::uint32_t id);
  [[nodiscard]] bool fits(Peer& peer, const Receive& receive, std::int64_t bytes);
  void deliver(Peer& peer, const Receive& receive, const std::byte* data, std::int64_t bytes);
  void consume(Peer& peer, std::int64_t bytes);
  void put(Peer& peer, const Outgoing& outgoing);
  void put_note(Peer& peer, Kind kind, std::uint32_t id = 0, Tag tag = 0, std::int64_t bytes = 0) {
    put(peer, {{kind, id, tag, bytes, 0}, nullptr, nullptr, {}});
  }
  void give_up(Peer& peer);
  void drop(Peer& peer);
  void report_loss(const Peer& peer, std::string message);
  [[nodiscard]] bool sends(const Peer& peer, const ConnectedChannel& channel) const;
  [[nodiscard]] bool awaits_goodbyes() const;
  void wait_for_goodbyes(TimePoint until);

  int rank_;
  std::int64_t window_;
  std::vector<Peer> peers_;
  BufferPool buffers_;
  std::deque<ConnectedChannel> channels_{};
  std::vector<ConnectedChannel*> free_channels_{};
  int under_way_ = 0;
  int uncollected_ = 0;  // finished transfers that no channel has collected
  bool driven_ = false;  // a channel has driven since the last `progress`
  bool closed_ = false;
  std::optional<Failure> loss_{};
  TimePoint loss_counts_at_{};
};

}  // namespace kolo::internal::messenger
