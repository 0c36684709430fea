// SPDX-License-Identifier: Apache-2.0
// A process that is no rank of the session under test.
#pragma once

#include <cstdlib>
#include <list>
#include <utility>
#include <vector>

#include "data_world.hpp"
#include "messenger/fabric_library.hpp"
#include "transport/handshake.hpp"

namespace kolo::internal::messenger {

/// A process that listens and calls, and does with messages what the test wants.
class Stranger {
 public:
  using Bytes = transport::Handshake::Bytes;

  Stranger() {
    const Info info(fabric_functions().dupinfo(domain_.info.get()));
    set_address(info->src_addr, info->src_addrlen, *info, loopback());
    check_fabric(::fi_passive_ep(domain_.fabric.get(), info.get(),
                                 domain_.passive.emplace_back().out(), nullptr),
                 "fi_passive_ep");
    fid_pep* const passive = domain_.passive.front().get();
    check_fabric(::fi_pep_bind(passive, &domain_.events->fid, 0), "fi_pep_bind");
    check_fabric(::fi_listen(passive), "fi_listen");
  }

  [[nodiscard]] transport::SocketAddress address() const {
    sockaddr_storage at{};
    std::size_t length = sizeof at;
    check_fabric(::fi_getname(&domain_.passive.front()->fid, &at, &length), "fi_getname");
    return transport::SocketAddress::from(reinterpret_cast<const sockaddr*>(&at));
  }

  /// Looks for an event, and handles it.
  void step() {
    FabricEvent event;
    if (!read_event(*domain_.events.get(), event)) return;
    if (event.info) {
      heard = event.handshake;
      calls_.push_back(std::move(event.info));
    } else if (event.kind == FI_CONNECTED && !event.handshake.empty()) {
      welcome = event.handshake;
    }
  }
  /// Answers all calls with this message.
  void answer(const Bytes& message) {
    for (const Info& info : std::exchange(calls_, {})) {
      endpoints_.push_back(domain_.make_endpoint(*info));
      check_fabric(::fi_accept(endpoints_.back().get(), message.data(), message.size()),
                   "fi_accept");
    }
  }
  void call(const transport::SocketAddress& at, const Bytes& hello) {
    const Info info(fabric_functions().dupinfo(domain_.info.get()));
    set_address(info->dest_addr, info->dest_addrlen, *info, at);
    std::free(std::exchange(info->src_addr, nullptr));
    info->src_addrlen = 0;
    endpoints_.push_back(domain_.make_endpoint(*info));
    check_fabric(::fi_connect(endpoints_.back().get(), info->dest_addr, hello.data(), hello.size()),
                 "fi_connect");
  }
  /// Sends this on the last connection.
  void send(const Bytes& message) {
    const Bytes& kept = sent_.emplace_back(message);
    long result = -FI_EAGAIN;
    while (result == -FI_EAGAIN)
      result = ::fi_send(endpoints_.back().get(), kept.data(), kept.size(), nullptr, 0, nullptr);
    check_fabric(result, "fi_send");
  }

  Bytes heard{};    // the message of the last call
  Bytes welcome{};  // the answer to this process's last call

 private:
  FabricDomain domain_{"tcp"};
  std::vector<Info> calls_{};
  std::vector<FabricHandle<fid_ep>> endpoints_{};
  std::list<Bytes> sent_{};  // libfabric reads it later
};

}  // namespace kolo::internal::messenger
