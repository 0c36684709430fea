// SPDX-License-Identifier: Apache-2.0
// Establishes the connections between ranks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/port_range.hpp"
#include "node/file_descriptor.hpp"
#include "transport/handshake.hpp"
#include "transport/socket_address.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::transport {

/// Listening sockets.
class Listeners {
 public:
  /// Listens at each address; with port 0, at a free port of the range. Leaves out addresses that
  /// cannot be used.
  explicit Listeners(const std::vector<SocketAddress>& addresses, const PortRange& range = {});

  /// The addresses with their ports.
  [[nodiscard]] const std::vector<SocketAddress>& addresses() const { return addresses_; }
  [[nodiscard]] const std::vector<node::FileDescriptor>& sockets() const { return sockets_; }

 private:
  std::vector<node::FileDescriptor> sockets_{};
  std::vector<SocketAddress> addresses_{};
};

/// A rank that this rank calls. The best address is first.
struct Callee {
  int rank;
  std::string host;
  std::vector<SocketAddress> addresses;
};

/// A rank that calls this rank.
struct Caller {
  int rank;
  std::string host;
};

struct Connection {
  int rank;
  node::FileDescriptor socket;
  FrameKeys keys{};
};

/// Makes this rank's connections while all other ranks make theirs. A caller tries the addresses of
/// a callee in order, again and again, and starts the next attempt while earlier ones are still
/// pending. It takes the first connection that the callee confirms. A callee drops callers that do
/// not know the secret. It waits for none of them, but a flood of them may make ranks call again.
class PeerConnector {
 public:
  /// Begins a connection to an address. A seam for tests.
  using Connect = std::function<Connecting(const SocketAddress&)>;

  PeerConnector(int rank, const Secret& secret, const Listeners& listeners,
                std::vector<Caller> callers, std::vector<Callee> callees,
                Parties::Kind kind = Parties::Kind::control, Connect connect = {});

  /// Waits up to `timeout` for an event and advances all handshakes. Returns true once all
  /// connections are complete.
  bool step(std::chrono::nanoseconds timeout);

  /// Names the missing ranks and the reasons; empty if no rank is missing.
  [[nodiscard]] std::string problem() const;
  [[nodiscard]] std::vector<int> missing() const;

  /// Returns the connections made since the last call. Their sockets are non-blocking.
  [[nodiscard]] std::vector<Connection> take() { return std::exchange(connections_, {}); }

  /// Awaits a call of one more rank, which may have called before.
  void await(Caller caller) { awaited_.push_back(std::move(caller)); }
  /// Lets the next step call all ranks that are not being called now, without a pause.
  void call_again() {
    for (Call& call : calls_)
      if (call.attempts.empty()) call.next_at = {};
  }
  /// The sockets of the handshakes that are under way.
  [[nodiscard]] std::vector<int> descriptors() const;
  /// True if a caller has not completed its handshake.
  [[nodiscard]] bool is_answering() const { return !answered_.empty(); }
  /// Drops the callers who have called before this time and have not completed their handshakes.
  void drop_callers_before(std::chrono::steady_clock::time_point time) {
    answered_.remove_if([&](const Attempt& attempt) { return attempt.since < time; });
  }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// A connection on which a handshake is in progress.
  struct Attempt {
    node::FileDescriptor socket{};
    std::size_t address = 0;  // the index of the address that is called
    TimePoint since = std::chrono::steady_clock::now();
    bool connecting = false;
    bool over = false;  // failed, or its socket was moved to a connection
    std::optional<Handshake> handshake{};
    std::array<std::byte, Handshake::max_bytes> received{};
    std::size_t bytes_received = 0;
  };
  struct Call {
    Callee callee;
    std::size_t next = 0;  // index of the next address to try
    TimePoint next_at{};
    std::map<std::size_t, std::string> failures{};  // the last one of each address
    bool done = false;
    std::list<Attempt> attempts{};
  };

  [[nodiscard]] bool complete() const;
  void wait(std::chrono::nanoseconds timeout);
  void accept_all();
  void drop_stranger();
  void answer_all();
  void answer(Attempt& attempt);
  void call_next(Call& call, TimePoint now);
  void connected(Call& call, Attempt& attempt);
  void fail(Call& call, Attempt& attempt, const std::string& why);
  void advance(Call& call, Attempt& attempt);
  [[nodiscard]] static bool send(const Attempt& attempt, const Handshake::Bytes& message);
  /// The next message, once it has arrived as a whole. Ends the attempt if the other side has hung
  /// up.
  [[nodiscard]] static std::optional<std::span<const std::byte>> receive(Attempt& attempt);

  Parties::Kind kind_;
  int rank_;
  Secret secret_;
  const Listeners& listeners_;
  Connect connect_;
  std::vector<Caller> awaited_;
  std::vector<Call> calls_{};
  std::list<Attempt> answered_{};  // accepted connections of callers, oldest first
  std::vector<Connection> connections_{};
};

}  // namespace kolo::internal::transport
