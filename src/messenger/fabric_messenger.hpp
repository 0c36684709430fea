// SPDX-License-Identifier: Apache-2.0
// A rank's messages over its libfabric connections with all other ranks.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "messenger/fabric_library.hpp"
#include "messenger/inbox.hpp"
#include "messenger/messenger.hpp"
#include "node/not_inherited.hpp"

namespace kolo::internal::messenger {

class FabricMessenger;

class FabricChannel : public Channel {
 public:
  explicit FabricChannel(FabricMessenger& messenger) : messenger_(messenger) {}

  void send(int peer, Tag tag, const std::byte* data, std::int64_t bytes, Token token) override;
  void receive(int peer, Tag tag, std::byte* data, std::int64_t bytes, Token token) override;
  void progress(std::vector<Token>& done) override;

 private:
  friend class FabricMessenger;

  FabricMessenger& messenger_;
  std::vector<Token> done_{};
  int under_way_ = 0;  // transfers of the channel
};

/// Each message begins with a header. A short payload travels with the header; a longer one follows
/// as a separate message, which libfabric receives directly into its destination.
///
/// If no receive waits for a message, the receiver stores it, so that messages with other tags can
/// overtake it. It stores at most a window of bytes per sender; longer or further messages are only
/// announced, and sent once the receiver asks for them. With few ranks the window is larger, since
/// more than 4 MiB may be in flight to a distant rank.
///
/// Every peer has one posted receive at all times. If a transfer fails, the peer counts as lost.
class FabricMessenger final : public Messenger {
 public:
  /// The window in bytes for each sender, in a session of `ranks` ranks.
  static constexpr std::int64_t window_among(int ranks) {
    return std::clamp(64 / ranks, 4, 16) * (std::int64_t{1} << 20);
  }
  static constexpr std::int64_t max_inline = 4096;

  /// Connected endpoints by rank; empty for this rank itself.
  using Endpoints = std::vector<FabricHandle<fid_ep>>;

  FabricMessenger(FabricDomain domain, int rank, Endpoints endpoints);
  ~FabricMessenger() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(peers_.size()); }
  [[nodiscard]] Tag tag_count() const override { return Tag{1} << 62; }
  [[nodiscard]] Channel& open() override;
  [[nodiscard]] bool release(Channel& channel) noexcept override;
  bool progress() override;
  [[nodiscard]] std::vector<int> descriptors() const override;
  [[nodiscard]] bool may_sleep() override;
  [[nodiscard]] bool uses_memory() const override { return under_way_ > 0 && !closed_; }
  [[nodiscard]] const Failure* loss() const override;
  void close(std::chrono::nanoseconds patience) noexcept override;

 private:
  friend class FabricChannel;

  enum class Kind : std::uint32_t {
    data,      // the payload comes with the header or follows
    announce,  // a payload with this id is ready to be sent
    grant,     // asks for the payload with this id
    payload,   // an announced payload follows
    consumed,  // opens the sender's window
    goodbye,   // the sender neither sends nor needs anything more
  };
  /// The wire format. All ranks run on the same architecture.
  struct Header {
    Kind kind;
    std::uint32_t id;
    Tag tag;
    std::int64_t bytes;     // size of the payload
    std::int64_t consumed;  // total bytes that this side has consumed of unannounced payloads
  };
  static_assert(sizeof(Header) == 32);

  struct Peer;
  /// A transfer of libfabric, which uses `context` for its own data and returns it on completion.
  struct Operation {
    enum class Kind : std::uint8_t { send_header, send_payload, receive_header, receive_payload };

    fi_context context;
    Kind kind;
    bool in_flight = false;
    Peer* peer = nullptr;
    FabricChannel* channel = nullptr;  // set in sends that complete a transfer
    Token token{};
    Header header{};                               // the header that is sent
    std::array<FabricHandle<fid_mr>, 2> memory{};  // registrations, if the network needs them
  };
  struct Outgoing {
    Header header;
    const std::byte* data;
    FabricChannel* channel;  // null if it completes no transfer
    Token token;
    bool header_sent = false;
  };
  /// An announced payload that the receiver has not asked for yet.
  struct Offer {
    std::uint32_t id;
    const std::byte* data;
    std::int64_t bytes;
    FabricChannel* channel;
    Token token;
  };
  struct Peer {
    int rank = -1;
    FabricHandle<fid_ep> endpoint{};  // empty if lost, and for this rank itself
    node::NotInherited socket{};      // closes the endpoint's socket in forked children
    bool said_goodbye = false;
    int under_way = 0;  // unfinished transfers with this peer
    Inbox inbox{};
    Operation receiving{};
    std::vector<std::byte> header_buffer{};
    std::optional<Receive> target{};    // the destination of the next payload
    Arrival* arriving = nullptr;        // the destination if no receive waits
    std::int64_t arriving_unasked = 0;  // size of the arriving payload if unannounced
    std::deque<Outgoing> outbox{};
    std::vector<Offer> offers{};
    std::uint32_t next_id = 0;
    std::int64_t sent_unasked = 0;
    std::int64_t consumed_there = 0;
    std::int64_t consumed_here = 0;
    std::int64_t consumed_reported = 0;
  };

  void send(FabricChannel& channel, int rank, Tag tag, const std::byte* data, std::int64_t bytes,
            Token token);
  void receive(const Receive& receive, int rank);

  bool drive();
  bool read_completions();
  void read_events();
  void complete(Operation& operation, std::size_t bytes);
  void take_header(Peer& peer, std::size_t bytes);
  void take_inline(Peer& peer, const Header& header, const std::byte* data);
  void expect_payload(Peer& peer, const Header& header);
  void take_announcement(Peer& peer, const Header& header);
  void take_grant(Peer& peer, std::uint32_t id);
  void take_payload(Peer& peer);
  [[nodiscard]] bool fits(Peer& peer, const Receive& receive, std::int64_t bytes);
  void deliver(Peer& peer, const Receive& receive, const std::byte* data, std::int64_t bytes);
  void finish(Peer& peer, FabricChannel* channel, Token token);
  void consume(Peer& peer, std::int64_t bytes);

  void put(Peer& peer, const Outgoing& outgoing);
  void put_note(Peer& peer, Kind kind, std::uint32_t id = 0, Tag tag = 0, std::int64_t bytes = 0) {
    put(peer, {{kind, id, tag, bytes, 0}, nullptr, nullptr, {}});
  }
  void flush(Peer& peer);
  [[nodiscard]] long post(Peer& peer, Outgoing& outgoing);
  [[nodiscard]] long post_header(Peer& peer, Outgoing& outgoing, bool is_inline);
  void post_header_receive(Peer& peer);
  void post_payload_receive(Peer& peer, std::byte* data, std::int64_t bytes);
  [[nodiscard]] void* registered(Operation& operation, std::size_t place, const void* data,
                                 std::size_t bytes, std::uint64_t access) const;
  [[nodiscard]] Operation& take_operation();
  void give_back(Operation& operation);
  void close_endpoint(Peer& peer);
  void lose(Peer& peer, const std::string& reason);
  void give_up(Peer& peer);
  void drop(Peer& peer);
  void report_loss(const Peer& peer, std::string message);
  [[nodiscard]] bool sends(const Peer& peer, const FabricChannel& channel) const;
  [[nodiscard]] bool awaits_goodbyes() const;
  void wait_for_goodbyes(TimePoint until);

  int rank_;
  std::int64_t window_;
  FabricDomain domain_;
  std::array<node::NotInherited, 2> not_inherited_;
  std::deque<Operation> operations_{};  // a deque: operations must not move
  std::vector<Operation*> free_operations_{};
  std::vector<Peer> peers_;
  std::deque<FabricChannel> channels_{};
  std::vector<FabricChannel*> free_channels_{};
  int under_way_ = 0;
  int uncollected_ = 0;  // finished transfers that no channel has collected
  bool driven_ = false;  // a channel has driven since the last `progress`
  bool closed_ = false;
  unsigned quiet_ = 0;  // consecutive calls without completions
  int blocked_ = 0;     // number of peers whose outbox is not empty
  std::optional<Failure> loss_{};
  TimePoint loss_counts_at_{};
};

}  // namespace kolo::internal::messenger
