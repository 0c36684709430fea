// SPDX-License-Identifier: Apache-2.0
// Connects a rank with all others for data.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/port_range.hpp"
#include "messenger/messenger.hpp"
#include "transport/handshake.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::messenger {

struct ListenOptions {
  int rank = 0;
  int size = 1;
  transport::Secret secret{};        // that of the session
  std::vector<std::string> hosts{};  // by rank, for messages; may be empty
  bool encrypts = false;             // the same on all ranks
  PortRange ports{};                 // of sockets
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(10);
};

/// Listens for the other ranks, and then connects with all of them.
class DataListener {
 public:
  DataListener() = default;
  DataListener(const DataListener&) = delete;
  DataListener& operator=(const DataListener&) = delete;
  virtual ~DataListener() = default;

  /// The addresses at which this rank listens, with ports.
  [[nodiscard]] virtual std::vector<transport::SocketAddress> addresses() const = 0;

  /// All ranks call this at the same time, and only once. `addresses` has, for each rank, where it
  /// listens, the best address first. A rank calls all lower ranks. Both sides prove that they know
  /// the secret, so that no stranger connects or is mistaken for a rank. `while_waiting` is
  /// called every few milliseconds and may throw. Throws BackendError that lists the missing ranks.
  [[nodiscard]] virtual std::unique_ptr<Messenger> connect(
      const std::vector<std::vector<transport::SocketAddress>>& addresses,
      const std::function<void()>& while_waiting) = 0;
};

/// Listens with TCP sockets at a free port of each address. Throws BackendError if none can be
/// opened.
[[nodiscard]] std::unique_ptr<DataListener> listen_with_sockets(
    const ListenOptions& options, const std::vector<transport::SocketAddress>& addresses);

}  // namespace kolo::internal::messenger
