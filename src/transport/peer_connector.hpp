// SPDX-License-Identifier: Apache-2.0
// How ranks come to have connections with each other.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "node/file_descriptor.hpp"
#include "transport/handshake.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::transport {

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
/// that do not answer. The caller completes its handshake on the first connection that is answered.
/// A caller without the secret is dropped, and delays no other.
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

  /// A connection on which a handshake is in progress.
  struct Attempt {
    node::FileDescriptor socket{};
    SocketAddress with{};
    bool connecting = false;
    bool over = false;  // to be dropped, or taken over
    std::unique_ptr<Handshake> handshake{};
    std::array<std::byte, control_handshake_bytes> received{};
    std::size_t bytes_received = 0;
  };
  struct Call {
    Callee callee;
    std::size_t next = 0;  // address
    TimePoint next_at{};
    std::string failures{};
    bool done = false;
    std::list<Attempt> attempts{};
  };

  [[nodiscard]] bool complete() const;
  void wait(std::chrono::nanoseconds most);
  void accept_all();
  void answer(Attempt& attempt);
  void call_next(Call& call, TimePoint now);
  void connected(Call& call, Attempt& attempt);
  void fail(Call& call, Attempt& attempt, const std::string& why);
  void advance(Call& call, Attempt& attempt);
  [[nodiscard]] static bool send(const Attempt& attempt, const Handshake::Bytes& message);
  /// True once a whole message was received. Ends the attempt if the other side has hung up.
  static bool receive(Attempt& attempt);

  int rank_;
  Secret secret_;
  const Listeners& listeners_;
  std::vector<Caller> awaited_;
  std::vector<Call> calls_{};
  std::list<Attempt> answered_{};  // by callers
  std::vector<Connection> connections_{};
};

}  // namespace kolo::internal::transport
