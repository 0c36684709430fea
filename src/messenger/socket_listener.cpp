// SPDX-License-Identifier: Apache-2.0
// Listens for the other ranks with TCP sockets.
#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/session_clock.hpp"
#include "kolo/error.hpp"
#include "messenger/data_listener.hpp"
#include "messenger/socket_messenger.hpp"
#include "transport/peer_connector.hpp"

namespace kolo::internal::messenger {
namespace {

using transport::SocketAddress;

std::vector<SocketAddress> at_any_port(std::vector<SocketAddress> addresses) {
  for (SocketAddress& address : addresses) address.port = 0;
  return addresses;
}

class SocketListener : public DataListener {
 public:
  SocketListener(const ListenOptions& options, const std::vector<SocketAddress>& addresses)
      : options_(options), listeners_(at_any_port(addresses), options.ports) {
    if (listeners_.sockets().empty() && options.size > 1)
      throw BackendError("cannot listen for data connections at any address of this host" +
                         (options.ports.is_set()
                              ? fmt::format(": no port of port_range {}:{} is free",
                                            options.ports.first, options.ports.last)
                              : ""));
  }

  [[nodiscard]] std::vector<SocketAddress> addresses() const override {
    return listeners_.addresses();
  }

  [[nodiscard]] std::unique_ptr<Messenger> connect(
      const std::vector<std::vector<SocketAddress>>& addresses,
      const std::function<void()>& while_waiting) override {
    std::vector<transport::Caller> callers;
    std::vector<transport::Callee> callees;
    for (int rank = 0; rank < options_.rank; ++rank)
      callees.push_back({rank, host_of(rank), addresses[static_cast<std::size_t>(rank)]});
    for (int rank = options_.rank + 1; rank < options_.size; ++rank)
      callers.push_back({rank, host_of(rank)});
    transport::PeerConnector connector(options_.rank, options_.secret, listeners_,
                                       std::move(callers), std::move(callees),
                                       transport::Parties::Kind::data);
    PatientDeadline deadline(options_.connect_timeout);
    while (!connector.step(std::chrono::milliseconds(5))) {
      if (deadline.is_over()) throw BackendError(connector.problem(), "", connector.missing());
      while_waiting();
    }
    listeners_ = transport::Listeners({});  // nobody else may call
    return std::make_unique<SocketMessenger>(options_.rank, options_.size, connector.take(),
                                             options_.encrypts);
  }

 private:
  [[nodiscard]] std::string host_of(int rank) const {
    return options_.hosts.empty() ? "" : options_.hosts[static_cast<std::size_t>(rank)];
  }

  ListenOptions options_;
  transport::Listeners listeners_;
};

}  // namespace

std::unique_ptr<DataListener> listen_with_sockets(const ListenOptions& options,
                                                  const std::vector<SocketAddress>& addresses) {
  return std::make_unique<SocketListener>(options, addresses);
}

}  // namespace kolo::internal::messenger
