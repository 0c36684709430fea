// SPDX-License-Identifier: Apache-2.0
// A rank's messages over its libfabric connections with all other ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "messenger/connected_messenger.hpp"
#include "messenger/fabric_library.hpp"
#include "node/not_inherited.hpp"
#include "transport/frame_tags.hpp"

namespace kolo::internal::messenger {

/// A short payload travels with its header. A longer one is a message of its own, which libfabric
/// receives directly into its destination. One receive is posted for each peer at all times.
class FabricMessenger final : public ConnectedMessenger {
 public:
  static constexpr std::int64_t max_inline = 4096;

  /// A connection with another rank.
  struct Endpoint {
    FabricHandle<fid_ep> endpoint{};
    transport::FrameKeys keys{};
  };
  /// By rank; empty for this rank itself.
  using Endpoints = std::vector<Endpoint>;

  FabricMessenger(FabricDomain domain, int rank, Endpoints endpoints);
  ~FabricMessenger() override;

  [[nodiscard]] std::string_view name() const override { return "fabric"; }
  [[nodiscard]] std::vector<int> descriptors() const override;

 private:
  /// A transfer of libfabric, which uses `context` for its own data and returns it on completion.
  struct Operation {
    enum class Kind : std::uint8_t { send_header, send_payload, receive_header, receive_payload };

    fi_context context;
    Kind kind;
    bool in_flight = false;
    int peer = -1;
    ConnectedChannel* channel = nullptr;  // set in sends that complete a transfer
    Token token{};
    TaggedHeader header{};                         // the header that is sent
    std::array<FabricHandle<fid_mr>, 2> memory{};  // registrations, if the network needs them
  };
  struct Link {
    FabricHandle<fid_ep> endpoint{};  // empty if lost, and for this rank itself
    Operation receiving{};
    std::vector<std::byte> header_buffer{};
    std::optional<Outgoing> payload{};  // its header was sent, but libfabric had no room for it
  };

  void flush(Peer& peer) override;
  void await_header(Peer& peer) override;
  void await_payload(Peer& peer, std::span<std::byte> payload) override;
  bool drive_network() override;
  [[nodiscard]] bool network_may_sleep() override;
  [[nodiscard]] bool network_sends(const Peer& peer,
                                   const ConnectedChannel& channel) const override;
  [[nodiscard]] bool has_sent_all(const Peer& peer) const override {
    return !link_of(peer).payload;
  }
  void disconnect(Peer& peer) noexcept override;
  void close_network() noexcept override;

  [[nodiscard]] Link& link_of(const Peer& peer) {
    return links_[static_cast<std::size_t>(peer.rank)];
  }
  [[nodiscard]] const Link& link_of(const Peer& peer) const {
    return links_[static_cast<std::size_t>(peer.rank)];
  }
  bool read_completions();
  void read_events();
  void complete(Operation& operation, std::size_t bytes);
  void take_message(Peer& peer, std::size_t bytes);
  [[nodiscard]] static bool is_inline(const Header& header) {
    return header.kind == Kind::data && header.bytes <= max_inline;
  }
  [[nodiscard]] long post_first(Peer& peer);
  [[nodiscard]] long post_header(Peer& peer, const Outgoing& outgoing);
  [[nodiscard]] long post_payload(Peer& peer, const Outgoing& outgoing);
  void post_receive(Peer& peer, std::span<std::byte> message);
  [[nodiscard]] void* registered(Operation& operation, std::size_t place, const void* data,
                                 std::size_t bytes, std::uint64_t access) const;
  [[nodiscard]] Operation& take_operation();
  void give_back(Operation& operation);

  FabricDomain domain_;
  std::array<node::NotInherited, 2> not_inherited_;
  std::deque<Operation> operations_{};  // a deque: operations must not move
  std::vector<Operation*> free_operations_{};
  std::vector<Link> links_;  // by rank
  bool is_full_ = false;     // libfabric had no room for a message, which is still to be sent
  unsigned quiet_ = 0;       // consecutive calls without completions
};

}  // namespace kolo::internal::messenger
