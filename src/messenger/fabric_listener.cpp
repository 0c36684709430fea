// SPDX-License-Identifier: Apache-2.0
// Listens for the other ranks by libfabric.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/session_clock.hpp"
#include "kolo/error.hpp"
#include "messenger/fabric.hpp"
#include "messenger/fabric_connector.hpp"
#include "messenger/fabric_library.hpp"
#include "messenger/fabric_messenger.hpp"

namespace kolo::internal::messenger {
namespace {

using transport::SocketAddress;
using Addresses = FabricConnector::Addresses;

class FabricListener : public DataListener {
 public:
  FabricListener(const ListenOptions& options, const std::string& provider,
                 const std::vector<SocketAddress>& addresses)
      : options_(options), domain_(provider) {
    if (options.encrypts) throw BackendError("data over libfabric cannot be encrypted");
    std::string problem = "there is no address";
    for (const SocketAddress& address : addresses) try {
        listen(address);
      } catch (const BackendError& error) {
        problem = error.what();
      }
    if (domain_.passive.empty() && options.size > 1)
      throw BackendError("cannot listen for data connections: " + problem);
  }

  [[nodiscard]] std::vector<SocketAddress> addresses() const override { return addresses_; }

  [[nodiscard]] std::unique_ptr<Messenger> connect(
      const Addresses& addresses, const std::function<void()>& while_waiting) override {
    FabricConnector connector(domain_, options_, addresses_, addresses);
    PatientDeadline deadline(options_.connect_timeout);
    while (!connector.step()) {
      // A connector that misses nobody still has to clear the queues.
      if (const std::vector<int> missing = connector.missing();
          !missing.empty() && deadline.is_over())
        throw BackendError(connector.problem(), "", missing);
      while_waiting();
    }
    FabricMessenger::Endpoints endpoints = connector.take_endpoints();
    return std::make_unique<FabricMessenger>(std::move(domain_), options_.rank,
                                             std::move(endpoints));
  }

 private:
  void listen(const SocketAddress& at) {
    SocketAddress any_port = at;
    any_port.port = 0;
    const Info info(fabric_functions().dupinfo(domain_.info.get()));
    set_address(info->src_addr, info->src_addrlen, *info, any_port);
    FabricHandle<fid_pep> passive;
    check_fabric(::fi_passive_ep(domain_.fabric.get(), info.get(), passive.out(), nullptr),
                 "fi_passive_ep");
    check_fabric(::fi_pep_bind(passive.get(), &domain_.events->fid, 0), "fi_pep_bind");
    check_fabric(::fi_listen(passive.get()), "fi_listen");
    sockaddr_storage address{};
    std::size_t length = sizeof address;
    check_fabric(::fi_getname(&passive->fid, &address, &length), "fi_getname");
    addresses_.push_back(SocketAddress::from(reinterpret_cast<const sockaddr*>(&address)));
    domain_.passive.push_back(std::move(passive));
  }

  ListenOptions options_;
  FabricDomain domain_;
  std::vector<SocketAddress> addresses_{};
};

}  // namespace

std::unique_ptr<DataListener> listen_on_fabric(const ListenOptions& options,
                                               const std::string& provider,
                                               const std::vector<SocketAddress>& addresses) {
  return std::make_unique<FabricListener>(options, provider, addresses);
}

}  // namespace kolo::internal::messenger
