// SPDX-License-Identifier: Apache-2.0
// Messages over connected endpoints of libfabric (FI_EP_MSG).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "messenger/data_listener.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::messenger {

/// Loads libfabric and starts its search for networks in a thread, since the search takes up to a
/// quarter of a second. The search runs once per process for each provider. `listen_on_fabric`
/// waits for the result and reports errors.
void find_fabric(const std::string& provider);

/// Listens at a free port of each address. Throws BackendError if none can be opened, if libfabric
/// is missing or lacks the provider, or if this build does not support libfabric. Such connections
/// cannot be encrypted.
[[nodiscard]] std::unique_ptr<DataListener> listen_on_fabric(
    const ListenOptions& options, const std::string& provider,
    const std::vector<transport::SocketAddress>& addresses);

}  // namespace kolo::internal::messenger
