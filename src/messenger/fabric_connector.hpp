// SPDX-License-Identifier: Apache-2.0
// Connects a rank with all others by libfabric.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messenger/fabric.hpp"
#include "messenger/fabric_messenger.hpp"

namespace kolo::internal::messenger {

/// A connection exists for the callee once the caller's proof has arrived: only then does it know
/// that the caller is there now, and until then any number of strangers may claim to be the caller.
/// It exists for the caller once the callee confirms it.
class FabricConnector {
 public:
  using SocketAddress = transport::SocketAddress;
  using Addresses = std::vector<std::vector<SocketAddress>>;  // by rank, the best one first

  FabricConnector(const FabricDomain& domain, const ListenOptions& options,
                  const std::vector<SocketAddress>& own_addresses, const Addresses& addresses);

  /// Returns true once all connections exist. Otherwise waits up to 5 ms for an event.
  bool step();

  [[nodiscard]] std::vector<int> missing() const;

  [[nodiscard]] std::string problem() const;

  [[nodiscard]] FabricMessenger::Endpoints take_endpoints();

 private:
  using Handshake = transport::Handshake;
  using Parties = transport::Parties;
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Attempt;

  /// A message of the handshake that libfabric sends or receives.
  struct Transfer {
    fi_context context;  // identifies the transfer in completions
    Attempt* attempt = nullptr;
    std::array<std::byte, Handshake::proof_bytes> bytes{};
    FabricHandle<fid_mr> memory{};  // the registration of `bytes`, if the network needs it
    bool is_due = false;            // to be sent
    bool under_way = false;
  };

  /// A call of one address, on either side. The proof and the confirmation are the first messages
  /// on the endpoint.
  struct Attempt {
    explicit Attempt(int other) : rank(other) { sent.attempt = received.attempt = this; }
    Attempt& operator=(Attempt&&) = delete;

    int rank;  // the other side; for a callee, the rank that the caller claims to have
    std::optional<Handshake> handshake{};
    Transfer sent{};
    Transfer received{};
    bool was_closed = false;  // before the last look at the queues
    // Empty if the attempt has failed. Closed before the memory of the transfers is.
    FabricHandle<fid_ep> endpoint{};

    void close() {
      endpoint.reset();
      sent.is_due = false;
    }
  };

  /// The connection with one rank. The higher rank of the two calls.
  struct Connection {
    int rank = -1;
    Attempt* chosen = nullptr;  // the connection, once both sides trust each other
    bool was_called = false;    // by somebody who claims to be this rank
    // Used only if this rank is the caller:
    Attempt* call = nullptr;  // the current one
    std::size_t next = 0;     // the index of the next address to call
    TimePoint next_at{};
    bool overdue = false;  // true if the answer was late in the previous step already
    std::string failures{};
  };

  /// The maximum number of connections that have proved nothing yet. All ranks that call this one
  /// may do so at once, so it is never less than their number.
  [[nodiscard]] static std::size_t max_unknown(const ListenOptions& options);

  /// True if there was an event or a completion.
  bool take_all();

  [[nodiscard]] bool complete() const {
    return std::ranges::all_of(connections_, [&](const Connection& one) {
      return one.chosen != nullptr || one.rank == own_;
    });
  }

  [[nodiscard]] Connection& connection_of(const Attempt& attempt) {
    return connections_[static_cast<std::size_t>(attempt.rank)];
  }
  [[nodiscard]] bool is_chosen(const Attempt& attempt) {
    return connection_of(attempt).chosen == &attempt;
  }

  /// Calls the rank's next address, and gives up the previous one if it has not answered.
  void call(Connection& one, TimePoint now);

  /// Closes the endpoint. A caller schedules another call, and reports each address at most once.
  /// The attempt itself stays while the queue may hold completions for it.
  void fail(Attempt& attempt, const std::string& why);

  void take(FabricEvent& event);

  /// The message of the handshake at the front of the event's bytes.
  static std::span<const std::byte> first_bytes(const FabricEvent& event,
                                                const Handshake& handshake) {
    const std::span bytes(event.handshake);
    return bytes.first(std::min(bytes.size(), handshake.awaited_bytes()));
  }

  /// Answers a call, and waits for the caller's proof.
  void answer(FabricEvent& event);

  void close_oldest(int caller);

  void* descriptor_of(Transfer& transfer, std::uint64_t access);

  void receive(Attempt& attempt);

  void send(Attempt& attempt, const Handshake::Bytes& message) {
    std::ranges::copy(message, attempt.sent.bytes.begin());
    attempt.sent.is_due = true;
    send(attempt);
  }
  /// Tries again in the next step if the endpoint cannot send now.
  void send(Attempt& attempt);

  /// True if there was a completion.
  bool take_completion();

  /// Takes the caller's proof or the callee's confirmation.
  void take(Attempt& attempt, std::size_t bytes);

  const FabricDomain& domain_;
  int own_;
  const std::vector<SocketAddress>& own_addresses_;
  const Addresses& addresses_;
  const transport::Secret& secret_;
  std::vector<Connection> connections_{};
  std::list<Attempt> attempts_{};  // oldest first
  std::size_t max_unknown_;
};

}  // namespace kolo::internal::messenger
