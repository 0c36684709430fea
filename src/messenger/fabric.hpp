// SPDX-License-Identifier: Apache-2.0
// Messages over connected endpoints of libfabric (FI_EP_MSG).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "messenger/messenger.hpp"
#include "transport/handshake.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::messenger {

/// The default provider of libfabric. The alternative `verbs` has not been tried on an adapter yet.
inline constexpr const char* default_provider = "tcp";

/// Loads libfabric and starts its search for networks in a thread, since the search takes up to a
/// quarter of a second. The search runs once per process for each provider. `FabricListener` waits
/// for the result and reports errors.
void find_fabric(const std::string& provider = default_provider);

struct FabricOptions {
  int rank = 0;
  int size = 1;
  std::string provider = default_provider;
  transport::Secret secret{};  // that of the session
  bool encrypts = false;       // the same on all ranks
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(10);
};

/// Listens for the other ranks, and then connects with all of them.
class FabricListener {
 public:
  FabricListener() = default;
  FabricListener(const FabricListener&) = delete;
  FabricListener& operator=(const FabricListener&) = delete;
  virtual ~FabricListener() = default;

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

/// Listens at a free port of each address. Throws BackendError if none can be opened, if libfabric
/// is missing or lacks the provider, or if this build does not support libfabric.
[[nodiscard]] std::unique_ptr<FabricListener> listen_on_fabric(
    const FabricOptions& options, const std::vector<transport::SocketAddress>& addresses);

}  // namespace kolo::internal::messenger
