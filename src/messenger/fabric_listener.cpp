// SPDX-License-Identifier: Apache-2.0
// Connects all ranks with each other by libfabric.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "messenger/fabric.hpp"
#include "messenger/fabric_messenger.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;
using transport::Handshake;
using transport::Secret;
using transport::SocketAddress;
using TimePoint = std::chrono::steady_clock::time_point;
using Addresses = std::vector<std::vector<SocketAddress>>;

constexpr auto answer_timeout = 1s;  // for one address, if the rank has others

/// The connection with one rank. The higher rank of the two calls.
struct Connection {
  int rank = -1;
  FabricHandle<fid_ep> endpoint{};
  bool connected = false;
  // Used only if this rank is the caller:
  std::unique_ptr<Handshake> handshake{};
  std::size_t next = 0;  // the index of the next address to call
  TimePoint next_at{};
  bool overdue = false;  // true if the answer was late in the previous step already
  std::string failures{};
};

class Connector {
 public:
  Connector(const FabricDomain& domain, const FabricOptions& options, const Addresses& addresses,
            const Secret& secret)
      : domain_(domain), own_(options.rank), addresses_(addresses), secret_(secret) {
    for (int rank = 0; rank < options.size; ++rank) connections_.push_back({.rank = rank});
  }

  /// Returns true once all connections exist. Otherwise waits up to 5 ms for an event.
  bool step() {
    bool moved = false;
    // Events come before the timeouts: this process may not have run for a while, and answers may
    // be waiting in the queue.
    while (take_events()) moved = true;
    const TimePoint now = std::chrono::steady_clock::now();
    for (Connection& one : connections_)
      if (one.rank < own_ && !one.connected && now >= one.next_at) call(one, now);
    // A final look at the queue: a caller may have given up a call that this rank accepted late.
    if (complete() && !take_events()) return true;
    fid* queue = &domain_.events->fid;
    if (!moved && ::fi_trywait(domain_.fabric.get(), &queue, 1) == FI_SUCCESS) {
      pollfd waiting{.fd = domain_.event_descriptor(), .events = POLLIN, .revents = 0};
      ::poll(&waiting, 1, 5);
    }
    return false;
  }

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (const Connection& one : connections_)
      if (one.rank != own_ && !one.connected) ranks.push_back(one.rank);
    return ranks;
  }

  [[nodiscard]] std::string problem() const {
    std::string text;
    for (const Connection& one : connections_) {
      if (one.rank == own_ || one.connected) continue;
      text += fmt::format("{}rank {}{}", text.empty() ? "" : ", ", one.rank,
                          one.failures.empty() ? one.rank < own_ ? " (no answer)" : " (no call)"
                                               : fmt::format(" ({})", one.failures));
    }
    return text.empty() ? text : "no connection for data with " + text;
  }

  [[nodiscard]] FabricMessenger::Endpoints take_endpoints() {
    FabricMessenger::Endpoints endpoints;
    for (Connection& one : connections_) endpoints.push_back(std::move(one.endpoint));
    return endpoints;
  }

 private:
  bool take_events() {
    bool any = false;
    for (FabricEvent event; read_event(*domain_.events.get(), event); event = {}) {
      take(event);
      any = true;
    }
    return any;
  }

  [[nodiscard]] bool complete() const {
    return std::ranges::all_of(
        connections_, [&](const Connection& one) { return one.connected || one.rank == own_; });
  }

  /// Calls the rank's next address, and gives up the previous one if it has not answered.
  void call(Connection& one, TimePoint now) {
    const auto& addresses = addresses_[static_cast<std::size_t>(one.rank)];
    if (one.endpoint && addresses.size() > 1) {
      // One more step of grace: the answer may already be in this process.
      if (!std::exchange(one.overdue, true)) return;
      fail(one, fmt::format("{}: no answer", to_string(address_of(one))));
    }
    if (one.endpoint || addresses.empty()) return;
    one.overdue = false;
    const SocketAddress& address = addresses[one.next++ % addresses.size()];
    one.next_at = now + answer_timeout;
    try {
      const Info info(fabric_functions().dupinfo(domain_.info.get()));
      set_address(info->dest_addr, info->dest_addrlen, *info, address);
      std::free(std::exchange(info->src_addr, nullptr));
      info->src_addrlen = 0;
      one.endpoint = domain_.make_endpoint(*info);
      one.handshake = make_data_handshake(Handshake::Side::caller, secret_, own_, one.rank);
      const Handshake::Bytes message = one.handshake->begin();
      check_fabric(
          ::fi_connect(one.endpoint.get(), info->dest_addr, message.data(), message.size()),
          "fi_connect");
    } catch (const BackendError& error) {
      fail(one, fmt::format("{}: {}", to_string(address), error.what()));
    }
  }

  /// The address that is being called.
  [[nodiscard]] const SocketAddress& address_of(const Connection& one) const {
    const auto& addresses = addresses_[static_cast<std::size_t>(one.rank)];
    return addresses[(one.next - 1) % addresses.size()];
  }

  /// Closes the endpoint and schedules another call. Reports each address at most once.
  void fail(Connection& one, const std::string& why) {
    one.endpoint.reset();
    one.connected = false;
    if (one.rank > own_) return;
    if (one.next <= addresses_[static_cast<std::size_t>(one.rank)].size())
      one.failures += (one.failures.empty() ? "" : "; ") + why;
    // Ranks listen before they exchange addresses, so the rank may be slow, but an immediate call
    // would not help.
    one.next_at = std::chrono::steady_clock::now() + 20ms;
  }

  void take(FabricEvent& event) {
    if (event.info) return answer(*event.info, event.handshake);
    for (Connection& one : connections_) {
      if (!one.endpoint || &one.endpoint->fid != event.object) continue;
      if (event.kind == FI_CONNECTED && event.error.empty() &&
          (one.rank > own_ || one.handshake->answer(event.handshake))) {
        one.connected = true;
      } else {
        const char* const why = !event.error.empty()         ? event.error.c_str()
                                : event.kind == FI_CONNECTED ? "another process answers"
                                                             : "the other side has hung up";
        fail(one, one.rank > own_ ? "" : fmt::format("{}: {}", to_string(address_of(one)), why));
      }
      return;
    }
  }

  /// Answers a call. A rank that calls a second time has given up its first call and closed it.
  void answer(fi_info& info, std::span<const std::byte> message) {
    const auto handshake = make_data_handshake(Handshake::Side::callee, secret_, own_);
    const auto reply = handshake->answer(message);
    const int caller = handshake->peer();
    const bool is_right = reply && caller > own_ && caller < static_cast<int>(connections_.size());
    if (!is_right || connections_[static_cast<std::size_t>(caller)].connected)
      return domain_.refuse(info);
    Connection& one = connections_[static_cast<std::size_t>(caller)];
    fail(one, "");
    try {
      one.endpoint = domain_.make_endpoint(info);
      check_fabric(::fi_accept(one.endpoint.get(), reply->data(), reply->size()), "fi_accept");
    } catch (const BackendError&) {
      one.endpoint.reset();  // the caller has given up meanwhile
    }
  }

  const FabricDomain& domain_;
  int own_;
  const Addresses& addresses_;
  const Secret& secret_;
  std::vector<Connection> connections_{};
};

class Listener : public FabricListener {
 public:
  Listener(const FabricOptions& options, const std::vector<SocketAddress>& addresses)
      : options_(options), domain_(options.provider) {
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
      const Addresses& addresses, const Secret& secret,
      const std::function<void()>& while_waiting) override {
    Connector connector(domain_, options_, addresses, secret);
    const TimePoint until = std::chrono::steady_clock::now() + options_.connect_timeout;
    while (!connector.step() && std::chrono::steady_clock::now() < until) while_waiting();
    if (std::string problem = connector.problem(); !problem.empty())
      throw BackendError(problem, "", connector.missing());
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

  FabricOptions options_;
  FabricDomain domain_;
  std::vector<SocketAddress> addresses_{};
};

}  // namespace

std::unique_ptr<FabricListener> listen_on_fabric(const FabricOptions& options,
                                                 const std::vector<SocketAddress>& addresses) {
  return std::make_unique<Listener>(options, addresses);
}

}  // namespace kolo::internal::messenger
