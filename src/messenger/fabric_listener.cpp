// SPDX-License-Identifier: Apache-2.0
// Connects all ranks with each other by libfabric.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "messenger/fabric.hpp"
#include "messenger/fabric_messenger.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;
using transport::Handshake;
using transport::Parties;
using transport::Secret;
using transport::SocketAddress;
using TimePoint = std::chrono::steady_clock::time_point;
using Addresses = std::vector<std::vector<SocketAddress>>;

constexpr auto answer_timeout = 1s;  // for one address, if the rank has others

/// A call of one address, on either side.
struct Attempt {
  fi_context context;  // identifies the transfer of the proof in completions
  int rank = -1;       // the other side; for a callee, the rank that the caller claims to have
  std::optional<Handshake> handshake{};
  FabricHandle<fid_ep> endpoint{};  // empty if the attempt has failed
  std::array<std::byte, Handshake::proof_bytes> proof{};
  FabricHandle<fid_mr> memory{};  // the registration of `proof`, if the network needs it
  bool was_answered = false;
  bool proof_is_due = false;  // the caller has not sent it yet
};
static_assert(std::is_standard_layout_v<Attempt>, "a context is the address of its attempt");

/// The connection with one rank. The higher rank of the two calls.
struct Connection {
  int rank = -1;
  Attempt* chosen = nullptr;  // the connection, once both sides trust each other
  // Used only if this rank is the caller:
  Attempt* call = nullptr;  // the current one
  std::size_t next = 0;     // the index of the next address to call
  TimePoint next_at{};
  bool overdue = false;  // true if the answer was late in the previous step already
  std::string failures{};
};

/// A connection exists once the caller's proof has arrived, which is the first message on its
/// endpoint: only then does the callee know that the caller is there now, and that it has chosen
/// this connection. Until then any number of strangers may claim to be the caller.
class Connector {
 public:
  Connector(const FabricDomain& domain, const FabricOptions& options,
            const std::vector<SocketAddress>& own_addresses, const Addresses& addresses,
            const Secret& secret)
      : domain_(domain),
        own_(options.rank),
        own_addresses_(own_addresses),
        addresses_(addresses),
        secret_(secret) {
    for (int rank = 0; rank < options.size; ++rank) connections_.push_back({.rank = rank});
  }

  /// Returns true once all connections exist. Otherwise waits up to 5 ms for an event.
  bool step() {
    // Events come before the timeouts: this process may not have run for a while, and answers may
    // be waiting in the queue.
    bool moved = take_all();
    const TimePoint now = std::chrono::steady_clock::now();
    for (Connection& one : connections_)
      if (one.rank < own_ && one.chosen == nullptr && now >= one.next_at) call(one, now);
    for (Attempt& attempt : attempts_)
      if (attempt.proof_is_due) send_proof(attempt);
    if (complete()) {
      // The queues must hold nothing that refers to this object. A final look at them also shows
      // connections that the other side has closed since.
      for (Attempt& attempt : attempts_)
        if (!is_chosen(attempt)) attempt.endpoint.reset();
      if (!take_all() && complete()) return true;
      moved = true;
    }
    std::array<fid*, 2> queues{&domain_.events->fid, &domain_.completions->fid};
    if (!moved && ::fi_trywait(domain_.fabric.get(), queues.data(), queues.size()) == FI_SUCCESS) {
      std::array<pollfd, 2> waiting{
          pollfd{.fd = domain_.event_descriptor(), .events = POLLIN, .revents = 0},
          pollfd{.fd = domain_.completion_descriptor(), .events = POLLIN, .revents = 0}};
      ::poll(waiting.data(), waiting.size(), 5);
    }
    return false;
  }

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (const Connection& one : connections_)
      if (one.rank != own_ && one.chosen == nullptr) ranks.push_back(one.rank);
    return ranks;
  }

  [[nodiscard]] std::string problem() const {
    std::string text;
    for (const Connection& one : connections_) {
      if (one.rank == own_ || one.chosen != nullptr) continue;
      text += fmt::format("{}rank {}{}", text.empty() ? "" : ", ", one.rank,
                          one.failures.empty() ? one.rank < own_ ? " (no answer)" : " (no call)"
                                               : fmt::format(" ({})", one.failures));
    }
    return text.empty() ? text : "no connection for data with " + text;
  }

  [[nodiscard]] FabricMessenger::Endpoints take_endpoints() {
    FabricMessenger::Endpoints endpoints(connections_.size());
    for (Connection& one : connections_)
      if (one.chosen != nullptr)
        endpoints[static_cast<std::size_t>(one.rank)] = std::move(one.chosen->endpoint);
    return endpoints;
  }

 private:
  // The maximum number of unproved calls that claim to be of one rank. Beyond it, the oldest is
  // closed.
  static constexpr std::ptrdiff_t max_unproved = 4;
  // A limit per step, so that calls of strangers do not keep the rank from the rest of its work.
  static constexpr int max_events = 64;

  /// True if there was an event or a completion.
  bool take_all() {
    int taken = 0;
    for (FabricEvent event; taken < max_events && read_event(*domain_.events.get(), event);
         event = {}) {
      take(event);
      ++taken;
    }
    while (taken < 2 * max_events && take_completion()) ++taken;
    return taken > 0;
  }

  [[nodiscard]] bool complete() const {
    return std::ranges::all_of(connections_, [&](const Connection& one) {
      return one.chosen != nullptr || one.rank == own_;
    });
  }

  [[nodiscard]] Connection& connection_of(const Attempt& attempt) {
    return connections_[static_cast<std::size_t>(attempt.rank)];
  }
  [[nodiscard]] bool is_chosen(const Attempt& attempt) {
    return connection_of(attempt).chosen == &attempt;
  }

  /// Calls the rank's next address, and gives up the previous one if it has not answered.
  void call(Connection& one, TimePoint now) {
    const auto& addresses = addresses_[static_cast<std::size_t>(one.rank)];
    if (one.call != nullptr && one.call->was_answered) return;
    if (one.call != nullptr && addresses.size() > 1) {
      // One more step of grace: the answer may already be in this process.
      if (!std::exchange(one.overdue, true)) return;
      fail(*one.call, "no answer");
    }
    if (one.call != nullptr || addresses.empty()) return;
    one.overdue = false;
    const SocketAddress& address = addresses[one.next++ % addresses.size()];
    one.next_at = now + answer_timeout;
    one.call = &attempts_.emplace_back();
    one.call->rank = one.rank;
    one.call->handshake.emplace(
        Handshake::Side::caller, secret_,
        Parties{.kind = Parties::Kind::data, .caller = own_, .callee = one.rank, .at = address});
    try {
      const Info info(fabric_functions().dupinfo(domain_.info.get()));
      set_address(info->dest_addr, info->dest_addrlen, *info, address);
      std::free(std::exchange(info->src_addr, nullptr));
      info->src_addrlen = 0;
      one.call->endpoint = domain_.make_endpoint(*info);
      const Handshake::Bytes message = one.call->handshake->begin();
      check_fabric(
          ::fi_connect(one.call->endpoint.get(), info->dest_addr, message.data(), message.size()),
          "fi_connect");
    } catch (const BackendError& error) {
      fail(*one.call, error.what());
    }
  }

  /// Closes the endpoint. A caller schedules another call, and reports each address at most once.
  /// The attempt itself stays, because the queue may still hold completions for it.
  void fail(Attempt& attempt, const std::string& why) {
    attempt.endpoint.reset();
    attempt.proof_is_due = false;
    Connection& one = connection_of(attempt);
    if (one.chosen == &attempt) one.chosen = nullptr;
    if (one.call != &attempt) return;
    one.call = nullptr;
    const auto& addresses = addresses_[static_cast<std::size_t>(one.rank)];
    if (one.next <= addresses.size())
      one.failures += fmt::format("{}{}: {}", one.failures.empty() ? "" : "; ",
                                  to_string(addresses[(one.next - 1) % addresses.size()]), why);
    // Ranks listen before they exchange addresses, so the rank may be slow, but an immediate call
    // would not help.
    one.next_at = std::chrono::steady_clock::now() + 20ms;
  }

  void take(FabricEvent& event) {
    if (event.info) return answer(event);
    const auto attempt = std::ranges::find_if(attempts_, [&](const Attempt& other) {
      return other.endpoint && &other.endpoint->fid == event.object;
    });
    if (attempt == attempts_.end()) return;
    if (!event.error.empty()) return fail(*attempt, event.error);
    if (event.kind != FI_CONNECTED) return fail(*attempt, "the other side has hung up");
    if (attempt->rank > own_) return;  // the caller's proof comes next
    const auto proof = attempt->handshake->answer(first_bytes(event, *attempt->handshake));
    if (!proof) return fail(*attempt, "another process answers");
    std::ranges::copy(*proof, attempt->proof.begin());
    attempt->was_answered = attempt->proof_is_due = true;
  }

  /// The message of the handshake at the front of the event's bytes.
  static std::span<const std::byte> first_bytes(const FabricEvent& event,
                                                const Handshake& handshake) {
    const std::span bytes(event.handshake);
    return bytes.first(std::min(bytes.size(), handshake.awaited_bytes()));
  }

  /// Answers a call, and waits for the caller's proof.
  void answer(FabricEvent& event) {
    const auto called = std::ranges::find_if(
        domain_.passive, [&](const auto& passive) { return &passive->fid == event.object; });
    Handshake handshake(
        Handshake::Side::callee, secret_,
        {.kind = Parties::Kind::data,
         .callee = own_,
         .at = called == domain_.passive.end()
                   ? SocketAddress{}
                   : own_addresses_[static_cast<std::size_t>(called - domain_.passive.begin())]});
    const auto reply = handshake.answer(first_bytes(event, handshake));
    const int caller = handshake.peer();
    const bool may_call = reply && caller > own_ && caller < static_cast<int>(connections_.size());
    if (!may_call || connections_[static_cast<std::size_t>(caller)].chosen != nullptr)
      return domain_.refuse(*event.info);
    close_oldest(caller);
    Attempt& attempt = attempts_.emplace_back();
    attempt.rank = caller;
    attempt.handshake = handshake;
    try {
      attempt.endpoint = domain_.make_endpoint(*event.info);
      const long result =
          ::fi_recv(attempt.endpoint.get(), attempt.proof.data(), attempt.proof.size(),
                    descriptor_of(attempt, FI_RECV), 0, &attempt.context);
      check_fabric(result, "fi_recv");
      check_fabric(::fi_accept(attempt.endpoint.get(), reply->data(), reply->size()), "fi_accept");
    } catch (const BackendError&) {
      attempt.endpoint.reset();  // the caller has given up meanwhile
    }
  }

  void close_oldest(int caller) {
    const auto is_unproved = [&](const Attempt& attempt) {
      return attempt.rank == caller && attempt.endpoint && !is_chosen(attempt);
    };
    if (std::ranges::count_if(attempts_, is_unproved) >= max_unproved)
      std::ranges::find_if(attempts_, is_unproved)->endpoint.reset();
  }

  void* descriptor_of(Attempt& attempt, std::uint64_t access) {
    if (!domain_.registers_memory()) return nullptr;
    check_fabric(::fi_mr_reg(domain_.domain.get(), attempt.proof.data(), attempt.proof.size(),
                             access, 0, 0, 0, attempt.memory.out(), nullptr),
                 "fi_mr_reg");
    return ::fi_mr_desc(attempt.memory.get());
  }

  void send_proof(Attempt& attempt) {
    attempt.memory.reset();
    const long result =
        ::fi_send(attempt.endpoint.get(), attempt.proof.data(), attempt.proof.size(),
                  descriptor_of(attempt, FI_SEND), 0, &attempt.context);
    if (result == -FI_EAGAIN) return;
    attempt.proof_is_due = false;
    if (result < 0) fail(attempt, fabric_error(result));
  }

  /// True if there was a completion: that of the proof.
  bool take_completion() {
    fi_cq_msg_entry entry{};
    fi_cq_err_entry error{};
    const auto count = ::fi_cq_read(domain_.completions.get(), &entry, 1);
    const bool has_failed = count == -FI_EAVAIL;
    if (has_failed && ::fi_cq_readerr(domain_.completions.get(), &error, 0) <= 0) return false;
    if (count < 0 && !has_failed) return false;
    void* const context = has_failed ? error.op_context : entry.op_context;
    if (context == nullptr) return true;
    auto& attempt = *static_cast<Attempt*>(context);
    if (!attempt.endpoint) return true;
    const std::span proof =
        std::span(attempt.proof).first(std::min(entry.len, Handshake::proof_bytes));
    if (has_failed)
      fail(attempt, fabric_error(-error.err));
    else if (attempt.rank > own_ && !attempt.handshake->answer(proof))
      fail(attempt, "");
    else
      connection_of(attempt).chosen = &attempt;
    return true;
  }

  const FabricDomain& domain_;
  int own_;
  const std::vector<SocketAddress>& own_addresses_;
  const Addresses& addresses_;
  const Secret& secret_;
  std::vector<Connection> connections_{};
  std::list<Attempt> attempts_{};  // oldest first
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
    Connector connector(domain_, options_, addresses_, addresses, secret);
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
