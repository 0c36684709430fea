// SPDX-License-Identifier: Apache-2.0
// A rank's messages over its libfabric connections with all other ranks.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "messenger/fabric_library.hpp"
#include "messenger/fabric_seal.hpp"
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

/// A receive that is not complete.
struct Receive {
  FabricChannel* channel;
  Token token;
  Tag tag;
  std::byte* data;
  std::int64_t bytes;
};

/// A message that arrived before its receive.
struct Arrival {
  enum class State : std::uint8_t {
    arriving,   // the next payload has its bytes
    whole,      // the buffer holds all bytes
    announced,  // the peer keeps the bytes until it gets a grant
  };

  Tag tag;
  std::int64_t bytes;
  State state;
  std::uint32_t id = 0;  // set if announced
  std::unique_ptr<std::byte[]> buffer{};
  std::optional<Receive> receive{};  // set if it was posted while the message was arriving
};

/// Matches the messages of one peer with the receives that wait for them. Among equal tags,
/// messages and receives match in order.
class Inbox {
 public:
  /// The oldest message with this tag that has no receive yet; null if there is none.
  [[nodiscard]] Arrival* find_arrival(Tag tag) {
    for (Arrival& arrival : arrivals_)
      if (arrival.tag == tag && !arrival.receive) return &arrival;
    return nullptr;
  }
  /// Removes the oldest receive for this tag and returns it.
  [[nodiscard]] std::optional<Receive> take_receive(Tag tag) {
    for (auto place = receives_.begin(); place != receives_.end(); ++place)
      if (place->tag == tag) return take(receives_, place);
    return std::nullopt;
  }

  void add(const Receive& receive) { receives_.push_back(receive); }
  /// The message keeps its address until it is removed.
  Arrival& add(Arrival arrival) { return arrivals_.emplace_back(std::move(arrival)); }
  void remove(const Arrival& arrival) {
    arrivals_.remove_if([&](const Arrival& other) { return &other == &arrival; });
  }

  /// Records that the peer may send the payload with this id, for this receive.
  void grant(std::uint32_t id, const Receive& receive) { granted_.emplace_back(id, receive); }
  [[nodiscard]] std::optional<Receive> take_granted(std::uint32_t id) {
    for (auto place = granted_.begin(); place != granted_.end(); ++place)
      if (place->first == id) return take(granted_, place).second;
    return std::nullopt;
  }

  /// Removes the channel's receives that no message has matched yet. Returns their number.
  [[nodiscard]] int withdraw(const FabricChannel& channel) {
    return static_cast<int>(
        std::erase_if(receives_, [&](const Receive& one) { return one.channel == &channel; }));
  }
  /// True if the peer may be sending data for another of the channel's receives.
  [[nodiscard]] bool receives(const FabricChannel& channel) const {
    for (const Arrival& arrival : arrivals_)
      if (arrival.receive && arrival.receive->channel == &channel) return true;
    for (const auto& [id, receive] : granted_)
      if (receive.channel == &channel) return true;
    return false;
  }

 private:
  template <typename Item>
  static Item take(std::vector<Item>& from, typename std::vector<Item>::iterator place) {
    Item item = std::move(*place);
    from.erase(place);
    return item;
  }

  // A short list: at most 16 chunks for each lane of each batch.
  std::vector<Receive> receives_{};
  std::vector<std::pair<std::uint32_t, Receive>> granted_{};
  std::list<Arrival> arrivals_{};
};

/// Each message begins with a header and its tag. A short payload travels with the header; a longer
/// one follows as a separate message, which libfabric receives directly into its destination. On an
/// encrypted connection, the payload has a tag of its own behind it.
///
/// If no receive waits for a message, the receiver stores it, so that messages with other tags can
/// overtake it. It stores at most a window of bytes per sender; a message that does not fit the
/// rest of the window is only announced, and sent once the receiver asks for it. With few ranks the
/// window is larger, since more than 4 MiB may be in flight to a distant rank.
///
/// Every peer has one posted receive at all times. If a transfer fails, the peer counts as lost.
class FabricMessenger final : public Messenger {
 public:
  /// The window in bytes for each sender, in a session of `ranks` ranks.
  static constexpr std::int64_t window_among(int ranks) {
    return std::clamp(64 / ranks, 4, 16) * (std::int64_t{1} << 20);
  }
  static constexpr std::int64_t max_inline = 4096;

  /// A connection with another rank.
  struct Endpoint {
    FabricHandle<fid_ep> endpoint{};
    transport::FrameKeys keys{};
  };
  /// By rank; empty for this rank itself.
  using Endpoints = std::vector<Endpoint>;

  FabricMessenger(FabricDomain domain, int rank, Endpoints endpoints, bool encrypts);
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
  struct TaggedHeader {
    FabricSeal::Tag tag;
    Header header;
  };
  static_assert(sizeof(TaggedHeader) == sizeof(FabricSeal::Tag) + sizeof(Header));

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
    TaggedHeader header{};                         // the header that is sent
    std::vector<std::byte> sealed{};               // the encrypted message
    std::array<FabricHandle<fid_mr>, 2> memory{};  // registrations, if the network needs them
  };
  struct Outgoing {
    Header header;
    const std::byte* data;
    FabricChannel* channel;  // null if it completes no transfer
    Token token;
    bool header_sent = false;
    Operation* payload = nullptr;  // the encrypted payload, if it could not be sent yet
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
    FabricSeal sent{};                // seals this rank's messages
    FabricSeal received{};            // opens the peer's messages
    bool said_goodbye = false;
    int under_way = 0;  // unfinished transfers with this peer
    Inbox inbox{};
    Operation receiving{};
    std::vector<std::byte> header_buffer{};
    FabricSeal::Tag payload_tag{};
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
  [[nodiscard]] long post_payload(Peer& peer, Outgoing& outgoing);
  void post_header_receive(Peer& peer);
  void post_payload_receive(Peer& peer, std::byte* data, std::int64_t bytes);
  [[nodiscard]] void* registered(Operation& operation, std::size_t place, const void* data,
                                 std::size_t bytes, std::uint64_t access) const;
  [[nodiscard]] static std::span<std::byte> sealed_buffer(Operation& operation, std::size_t bytes);
  [[nodiscard]] Operation& take_operation();
  void give_back(Operation& operation);
  void close_endpoint(Peer& peer);
  void lose(Peer& peer, const std::string& reason);
  void give_up(Peer& peer);
  void refuse(Peer& peer);
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
