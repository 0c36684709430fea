// SPDX-License-Identifier: Apache-2.0
// How ranks come to have connections with each other.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.hpp"
#include "node/file_descriptor.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::transport {

/// Known to all ranks of a session and to no other process.
using Secret = std::array<std::byte, 32>;

/// Sockets at which connections are awaited. Throws BackendError.
class Listeners {
 public:
  /// At a port of its own for each address. Addresses that cannot be had are left out.
  explicit Listeners(const std::vector<SocketAddress>& addresses);

  /// With their ports.
  [[nodiscard]] const std::vector<SocketAddress>& addresses() const { return addresses_; }
  [[nodiscard]] const std::vector<node::FileDescriptor>& sockets() const { return sockets_; }

 private:
  std::vector<node::FileDescriptor> sockets_{};
  std::vector<SocketAddress> addresses_{};
};

/// A rank that this one calls, and where, the best address first.
struct Callee {
  int rank;
  std::string host;
  std::vector<SocketAddress> addresses;
};

/// A rank that calls this one.
struct Caller {
  int rank;
  std::string host;
};

struct Connection {
  int rank;
  node::FileDescriptor socket;
};

/// All ranks connect at once. A caller tries the addresses in their order, without giving up those
/// that do not answer. It sends a random number; the answer holds another one and a proof that the
/// answerer knows the secret. The caller sends its own proof on the first connection that is
/// answered. A caller without the secret is dropped, and delays no other.
class PeerConnector {
 public:
  PeerConnector(int rank, const Secret& secret, const Listeners& listeners,
                std::vector<Caller> callers, std::vector<Callee> callees);

  /// Does what can be done; waits at most `most` for something to do. True once all are there.
  bool step(std::chrono::nanoseconds most);

  /// The missing ranks, and why; empty if there are none.
  [[nodiscard]] std::string problem() const;
  [[nodiscard]] std::vector<int> missing() const;

  /// Non-blocking sockets. Only once.
  [[nodiscard]] std::vector<Connection> take() { return std::move(connections_); }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  using Nonce = std::array<std::byte, 16>;

  enum class GreetingKind : std::uint32_t { hello, welcome, chosen };
  struct Greeting {
    Nonce nonce;   // the sender's
    Digest proof;  // that the sender knows the secret; zeros in a hello
    std::int32_t from;
    std::int32_t to;
    GreetingKind kind;
  };
  /// A connection on which greetings are exchanged.
  struct Handshake {
    node::FileDescriptor socket{};
    SocketAddress with{};
    bool connecting = false;
    bool over = false;  // to be dropped, or taken over
    std::int32_t rank = -1;
    Nonce own{};
    Nonce theirs{};
    std::array<std::byte, sizeof(Greeting)> received{};
    std::size_t bytes_received = 0;
  };
  struct Call {
    Callee callee;
    std::size_t next = 0;  // address
    TimePoint next_at{};
    std::string failures{};
    bool done = false;
    std::list<Handshake> handshakes{};
  };

  [[nodiscard]] bool complete() const;
  void wait(std::chrono::nanoseconds most);
  void accept_all();
  void answer(Handshake& handshake);
  void call_next(Call& call, TimePoint now);
  void connected(Call& call, Handshake& handshake);
  void fail(Call& call, Handshake& handshake, const std::string& why);
  void advance(Call& call, Handshake& handshake);
  [[nodiscard]] bool send(const Handshake& handshake, int to, GreetingKind kind) const;
  [[nodiscard]] bool is_right(const Handshake& handshake, const Greeting& greeting,
                              GreetingKind kind) const;
  [[nodiscard]] Digest prove(GreetingKind kind, const Nonce& sender, const Nonce& receiver,
                             int from, int to) const;
  /// True once a whole greeting was received. Ends the handshake if the other side has.
  static bool receive(Handshake& handshake, Greeting& greeting);

  int rank_;
  Secret secret_;
  const Listeners& listeners_;
  std::vector<Caller> awaited_;
  std::vector<Call> calls_{};
  std::list<Handshake> answered_{};  // with callers
  std::vector<Connection> connections_{};
};

}  // namespace kolo::internal::transport
