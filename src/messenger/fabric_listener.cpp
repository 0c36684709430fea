// SPDX-License-Identifier: Apache-2.0
// How ranks come to have connections for data with each other.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "messenger/fabric.hpp"
#include "messenger/fabric_messenger.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;
using transport::Secret;
using transport::SocketAddress;
using TimePoint = std::chrono::steady_clock::time_point;
using Addresses = std::vector<std::vector<SocketAddress>>;

constexpr std::size_t max_private_data = 256;
constexpr auto answer_timeout = 1s;  // of one address, if there is another

/// The private data of a connection. The caller's has the first half of the secret, the answer the
/// second.
struct Greeting {
  std::array<std::byte, 16> secret;
  std::int32_t from;
  std::int32_t to;

  friend bool operator==(const Greeting&, const Greeting&) = default;
};

Greeting make_greeting(const Secret& secret, bool is_answer, int from, int to) {
  Greeting greeting{{}, from, to};
  std::copy_n(secret.begin() + (is_answer ? greeting.secret.size() : 0), greeting.secret.size(),
              greeting.secret.begin());
  return greeting;
}

/// Of the event queue, with room for private data.
struct Event {
  std::uint32_t kind = 0;
  fid* object = nullptr;
  Info info{};          // of a call
  Greeting greeting{};  // zeros if there is none
  std::string error{};  // the object has failed
};

/// False if there is none.
bool read_event(fid_eq& events, Event& event) {
  alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + max_private_data> buffer{};
  const auto bytes = ::fi_eq_read(&events, &event.kind, buffer.data(), buffer.size(), 0);
  if (bytes == -FI_EAVAIL) {
    fi_eq_err_entry error{};
    if (::fi_eq_readerr(&events, &error, 0) <= 0) return false;
    event.object = error.fid;
    event.error = fabric_error(-error.err);
    return true;
  }
  if (bytes < 0) return false;
  const auto& entry = *reinterpret_cast<const fi_eq_cm_entry*>(buffer.data());
  event.object = entry.fid;
  if (event.kind == FI_CONNREQ) event.info.reset(entry.info);
  if (static_cast<std::size_t>(bytes) >= sizeof entry + sizeof event.greeting)
    std::memcpy(&event.greeting, entry.data, sizeof event.greeting);
  return true;
}

/// A rank that this one calls, or that calls this one.
struct Connection {
  int rank = -1;
  FabricHandle<fid_ep> endpoint{};
  bool connected = false;
  // Of one that is called.
  std::size_t next = 0;  // address
  TimePoint next_at{};
  std::string failures{};
};

class Connector {
 public:
  Connector(const FabricDomain& domain, const FabricOptions& options, const Addresses& addresses,
            const Secret& secret)
      : domain_(domain), own_(options.rank), addresses_(addresses), secret_(secret) {
    for (int rank = 0; rank < options.size; ++rank) connections_.push_back({.rank = rank});
  }

  /// True once all are there. Waits a few milliseconds for something to happen.
  bool step() {
    const TimePoint now = std::chrono::steady_clock::now();
    for (Connection& one : connections_)
      if (one.rank < own_ && !one.connected && now >= one.next_at) call(one, now);
    bool moved = false;
    for (Event event; read_event(*domain_.events.get(), event); event = {}) {
      take(event);
      moved = true;
    }
    if (complete()) return true;
    fid* queue = &domain_.events->fid;
    if (!moved && ::fi_trywait(domain_.fabric.get(), &queue, 1) == FI_SUCCESS) {
      pollfd waiting{.fd = domain_.event_descriptor(), .events = POLLIN, .revents = 0};
      ::poll(&waiting, 1, 5);
    }
    return false;
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
  [[nodiscard]] bool complete() const {
    return std::ranges::all_of(
        connections_, [&](const Connection& one) { return one.connected || one.rank == own_; });
  }

  /// The next address; the one that has not answered is given up.
  void call(Connection& one, TimePoint now) {
    const auto& addresses = addresses_[static_cast<std::size_t>(one.rank)];
    if (one.endpoint && addresses.size() > 1)
      fail(one, fmt::format("{}: no answer", to_string(addresses[current(one)])));
    if (one.endpoint || addresses.empty()) return;
    const SocketAddress& address = addresses[one.next++ % addresses.size()];
    one.next_at = now + answer_timeout;
    try {
      const Info info(fabric_functions().dupinfo(domain_.info.get()));
      set_address(info->dest_addr, info->dest_addrlen, *info, address);
      std::free(std::exchange(info->src_addr, nullptr));
      info->src_addrlen = 0;
      one.endpoint = domain_.make_endpoint(*info);
      const Greeting greeting = make_greeting(secret_, false, own_, one.rank);
      check_fabric(::fi_connect(one.endpoint.get(), info->dest_addr, &greeting, sizeof greeting),
                   "fi_connect");
    } catch (const BackendError& error) {
      fail(one, fmt::format("{}: {}", to_string(address), error.what()));
    }
  }

  [[nodiscard]] std::size_t current(const Connection& one) const {
    return (one.next - 1) % addresses_[static_cast<std::size_t>(one.rank)].size();
  }

  /// Each address is named once.
  void fail(Connection& one, const std::string& why) {
    one.endpoint.reset();
    one.connected = false;
    if (one.rank > own_) return;
    if (one.next <= addresses_[static_cast<std::size_t>(one.rank)].size())
      one.failures += (one.failures.empty() ? "" : "; ") + why;
    // A rank that listens does so already: it may be slow, but calling it at once is of no use.
    one.next_at = std::chrono::steady_clock::now() + 20ms;
  }

  void take(Event& event) {
    if (event.info) return answer(*event.info, event.greeting);
    for (Connection& one : connections_) {
      if (!one.endpoint || &one.endpoint->fid != event.object) continue;
      if (event.kind == FI_CONNECTED && event.error.empty() &&
          (one.rank > own_ || event.greeting == make_greeting(secret_, true, one.rank, own_))) {
        one.connected = true;
      } else if (one.rank > own_) {
        fail(one, "");
      } else {
        fail(one,
             fmt::format("{}: {}",
                         to_string(addresses_[static_cast<std::size_t>(one.rank)][current(one)]),
                         event.error.empty() ? "another process answers" : event.error));
      }
      return;
    }
  }

  /// A rank that calls again has given up its first call.
  void answer(fi_info& info, const Greeting& greeting) {
    const int caller = greeting.from;
    const bool is_right = caller > own_ && caller < static_cast<int>(connections_.size()) &&
                          greeting == make_greeting(secret_, false, caller, own_);
    if (!is_right) {
      if (passive_ != nullptr) ::fi_reject(passive_, info.handle, nullptr, 0);
      return;
    }
    Connection& one = connections_[static_cast<std::size_t>(caller)];
    fail(one, "");
    try {
      one.endpoint = domain_.make_endpoint(info);
      const Greeting reply = make_greeting(secret_, true, own_, caller);
      check_fabric(::fi_accept(one.endpoint.get(), &reply, sizeof reply), "fi_accept");
    } catch (const BackendError&) {
      one.endpoint.reset();  // the caller has given up
    }
  }

 public:
  /// For refusals.
  void use(fid_pep* passive) { passive_ = passive; }

 private:
  const FabricDomain& domain_;
  int own_;
  const Addresses& addresses_;
  const Secret& secret_;
  fid_pep* passive_ = nullptr;
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
    if (passive_.empty() && options.size > 1)
      throw BackendError("no address to listen at for data: " + problem);
  }
  ~Listener() override { passive_.clear(); }

  [[nodiscard]] std::vector<SocketAddress> addresses() const override { return addresses_; }

  [[nodiscard]] std::unique_ptr<Messenger> connect(
      const Addresses& addresses, const Secret& secret,
      const std::function<void()>& while_waiting) override {
    Connector connector(domain_, options_, addresses, secret);
    if (!passive_.empty()) connector.use(passive_.front().get());
    const TimePoint until = std::chrono::steady_clock::now() + options_.connect_timeout;
    while (!connector.step() && std::chrono::steady_clock::now() < until) while_waiting();
    passive_.clear();  // nobody else is to come
    if (std::string problem = connector.problem(); !problem.empty()) throw BackendError(problem);
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
    passive_.push_back(std::move(passive));
  }

  FabricOptions options_;
  FabricDomain domain_;
  std::vector<FabricHandle<fid_pep>> passive_{};
  std::vector<SocketAddress> addresses_{};
};

}  // namespace

std::unique_ptr<FabricListener> listen_on_fabric(const FabricOptions& options,
                                                 const std::vector<SocketAddress>& addresses) {
  return std::make_unique<Listener>(options, addresses);
}

}  // namespace kolo::internal::messenger
