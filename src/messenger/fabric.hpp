// SPDX-License-Identifier: Apache-2.0
// Data over libfabric's connected endpoints (FI_EP_MSG).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "messenger/messenger.hpp"
#include "transport/handshake.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::messenger {

/// The provider of libfabric that is used by default. Another is `verbs`, not yet tried on an
/// adapter.
inline constexpr const char* default_provider = "tcp";

/// Loads libfabric and lets it look for networks, in a thread of its own because that takes up to
/// a quarter of a second. Once for each provider in a process; `FabricListener` waits for the
/// result and reports errors.
void find_fabric(const std::string& provider = default_provider);

struct FabricOptions {
  int rank = 0;
  int size = 1;
  std::string provider = default_provider;
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(10);
};

/// A rank that listens for the others, and then connects with all of them.
class FabricListener {
 public:
  FabricListener() = default;
  FabricListener(const FabricListener&) = delete;
  FabricListener& operator=(const FabricListener&) = delete;
  virtual ~FabricListener() = default;

  /// With their ports.
  [[nodiscard]] virtual std::vector<transport::SocketAddress> addresses() const = 0;

  /// All ranks at once. `addresses`: by rank, where each listens, the best one first. A rank calls
  /// those before it. Call and answer prove that their senders know the secret, so that strangers
  /// neither get in nor are taken for a rank. `while_waiting` is called every few
  /// milliseconds and may throw. Throws BackendError, whose ranks are the missing ones. Only once.
  [[nodiscard]] virtual std::unique_ptr<Messenger> connect(
      const std::vector<std::vector<transport::SocketAddress>>& addresses,
      const transport::Secret& secret, const std::function<void()>& while_waiting) = 0;
};

/// At a free port of each address. Throws BackendError if none can be had, if libfabric is not
/// found or has no such provider, or if this build is without libfabric.
[[nodiscard]] std::unique_ptr<FabricListener> listen_on_fabric(
    const FabricOptions& options, const std::vector<transport::SocketAddress>& addresses);

}  // namespace kolo::internal::messenger
