// SPDX-License-Identifier: Apache-2.0
#include "messenger/fabric_connector.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "base/process_limits.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::messenger {
namespace {

// The time after which a call is repeated: at the next address, or at the rank's only one.
constexpr std::chrono::seconds answer_timeout{1};
constexpr std::chrono::seconds only_answer_timeout{3};
// The maximum number of unproved calls that claim to be of one rank. Beyond it, the oldest is
// closed.
constexpr std::ptrdiff_t max_unproved = 4;
// A limit per step, so that calls of strangers do not keep the rank from the rest of its work.
constexpr int max_events = 64;

}  // namespace

FabricConnector::FabricConnector(const FabricDomain& domain, const ListenOptions& options,
                                 const std::vector<SocketAddress>& own_addresses,
                                 const Addresses& addresses)
    : domain_(domain),
      own_(options.rank),
      own_addresses_(own_addresses),
      addresses_(addresses),
      secret_(options.secret),
      max_unknown_(max_unknown(options)) {
  static_assert(std::is_standard_layout_v<Transfer>, "a context is the address of its transfer");
  for (int rank = 0; rank < options.size; ++rank) connections_.push_back({.rank = rank});
}

bool FabricConnector::step() {
  // Events come before the timeouts: this process may not have run for a while, and answers may
  // be waiting in the queue.
  bool moved = take_all();
  const TimePoint now = std::chrono::steady_clock::now();
  for (Connection& one : connections_)
    if (one.rank < own_ && one.chosen == nullptr && now >= one.next_at) call(one, now);
  for (Attempt& attempt : attempts_)
    if (attempt.sent.is_due) send(attempt);
  if (complete()) {
    // The queues must hold nothing that refers to this object. A final look at them also shows
    // connections that the other side has closed since.
    for (Attempt& attempt : attempts_)
      if (!is_chosen(attempt)) attempt.close();
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

std::vector<int> FabricConnector::missing() const {
  std::vector<int> ranks;
  for (const Connection& one : connections_)
    if (one.rank != own_ && one.chosen == nullptr) ranks.push_back(one.rank);
  return ranks;
}

std::string FabricConnector::problem() const {
  std::string text;
  for (const Connection& one : connections_) {
    if (one.rank == own_ || one.chosen != nullptr) continue;
    const std::string why = !one.failures.empty() ? one.failures
                            : one.rank < own_     ? "no answer"
                            : one.was_called      ? "nobody who called as this rank has proved to "
                                                    "know the secret"
                                                  : "no call";
    text += fmt::format("{}rank {} ({})", text.empty() ? "" : ", ", one.rank, why);
  }
  return text.empty() ? text : "no connection for data with " + text;
}

FabricMessenger::Endpoints FabricConnector::take_endpoints() {
  FabricMessenger::Endpoints endpoints(connections_.size());
  for (Connection& one : connections_)
    if (one.chosen != nullptr)
      endpoints[static_cast<std::size_t>(one.rank)] = {std::move(one.chosen->endpoint),
                                                       one.chosen->handshake->keys()};
  return endpoints;
}

std::size_t FabricConnector::max_unknown(const ListenOptions& options) {
  const auto ranks = static_cast<std::size_t>(options.size);
  return std::max(ranks, descriptors_for_strangers(64 + 2 * ranks));
}

bool FabricConnector::take_all() {
  for (Attempt& attempt : attempts_) attempt.was_closed = !attempt.endpoint;
  int taken = 0;
  for (FabricEvent event; taken < max_events && read_event(*domain_.events.get(), event);
       event = {}) {
    take(event);
    ++taken;
  }
  bool is_empty = false;
  while (taken < 2 * max_events && !is_empty) {
    is_empty = !take_completion();
    if (!is_empty) ++taken;
  }
  // The queue held the last completions of these.
  if (is_empty) attempts_.remove_if([](const Attempt& attempt) { return attempt.was_closed; });
  return taken > 0;
}

void FabricConnector::call(Connection& one, TimePoint now) {
  const auto& addresses = addresses_[static_cast<std::size_t>(one.rank)];
  if (one.call != nullptr && one.call->handshake->is_trusted()) return;
  if (one.call != nullptr) {
    // One more step of grace: the answer may already be in this process.
    if (!std::exchange(one.overdue, true)) return;
    fail(*one.call, "no answer");
  }
  if (one.call != nullptr || addresses.empty()) return;
  one.overdue = false;
  const SocketAddress& address = addresses[one.next++ % addresses.size()];
  one.next_at = now + (addresses.size() > 1 ? answer_timeout : only_answer_timeout);
  one.call = &attempts_.emplace_back(one.rank);
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

void FabricConnector::fail(Attempt& attempt, const std::string& why) {
  attempt.close();
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
  one.next_at = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
}

void FabricConnector::take(FabricEvent& event) {
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
  try {
    receive(*attempt);
  } catch (const BackendError& error) {
    return fail(*attempt, error.what());
  }
  send(*attempt, *proof);
}

void FabricConnector::answer(FabricEvent& event) {
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
  connections_[static_cast<std::size_t>(caller)].was_called = true;
  close_oldest(caller);
  Attempt& attempt = attempts_.emplace_back(caller);
  attempt.handshake = handshake;
  try {
    attempt.endpoint = domain_.make_endpoint(*event.info);
    receive(attempt);
    check_fabric(::fi_accept(attempt.endpoint.get(), reply->data(), reply->size()), "fi_accept");
  } catch (const BackendError&) {
    attempt.close();  // the caller has given up meanwhile
  }
}

void FabricConnector::close_oldest(int caller) {
  const auto is_unproved = [&](const Attempt& attempt) {
    return attempt.rank == caller && attempt.endpoint && !is_chosen(attempt);
  };
  if (std::ranges::count_if(attempts_, is_unproved) >= max_unproved)
    std::ranges::find_if(attempts_, is_unproved)->close();
  const auto is_any = [&](const Attempt& attempt) {
    return attempt.rank > own_ && attempt.endpoint && !is_chosen(attempt);
  };
  if (static_cast<std::size_t>(std::ranges::count_if(attempts_, is_any)) >= max_unknown_)
    std::ranges::find_if(attempts_, is_any)->close();
}

void* FabricConnector::descriptor_of(Transfer& transfer, std::uint64_t access) {
  if (!domain_.registers_memory()) return nullptr;
  transfer.memory.reset();
  check_fabric(::fi_mr_reg(domain_.domain.get(), transfer.bytes.data(), transfer.bytes.size(),
                           access, 0, 0, 0, transfer.memory.out(), nullptr),
               "fi_mr_reg");
  return ::fi_mr_desc(transfer.memory.get());
}

void FabricConnector::receive(Attempt& attempt) {
  Transfer& next = attempt.received;
  check_fabric(::fi_recv(attempt.endpoint.get(), next.bytes.data(), next.bytes.size(),
                         descriptor_of(next, FI_RECV), 0, &next.context),
               "fi_recv");
  next.under_way = true;
}

void FabricConnector::send(Attempt& attempt) {
  Transfer& due = attempt.sent;
  const long result = ::fi_send(attempt.endpoint.get(), due.bytes.data(), due.bytes.size(),
                                descriptor_of(due, FI_SEND), 0, &due.context);
  if (result == -FI_EAGAIN) return;
  due.is_due = false;
  due.under_way = result == 0;
  if (result < 0) fail(attempt, fabric_error(result));
}

bool FabricConnector::take_completion() {
  fi_cq_msg_entry entry{};
  fi_cq_err_entry error{};
  errno = 0;  // as in `read_event`
  const auto count = ::fi_cq_read(domain_.completions.get(), &entry, 1);
  const bool has_failed = count == -FI_EAVAIL;
  if (has_failed && ::fi_cq_readerr(domain_.completions.get(), &error, 0) <= 0) return false;
  if (count < 0 && !has_failed) return false;
  void* const context = has_failed ? error.op_context : entry.op_context;
  if (context == nullptr) return true;
  auto& transfer = *static_cast<Transfer*>(context);
  Attempt& attempt = *transfer.attempt;
  if (!attempt.endpoint) return true;
  if (has_failed) {
    fail(attempt, fabric_error(-error.err));
    return true;
  }
  transfer.under_way = false;
  if (&transfer == &attempt.received) take(attempt, entry.len);
  if (attempt.endpoint && attempt.handshake->is_complete() && !attempt.sent.is_due &&
      !attempt.sent.under_way && connection_of(attempt).chosen == nullptr)
    connection_of(attempt).chosen = &attempt;
  return true;
}

void FabricConnector::take(Attempt& attempt, std::size_t bytes) {
  const std::span message =
      std::span(attempt.received.bytes).first(std::min(bytes, attempt.received.bytes.size()));
  const auto reply = attempt.handshake->answer(message);
  if (!reply || connection_of(attempt).chosen != nullptr)
    return fail(attempt, "another process answers");
  if (!reply->empty()) send(attempt, *reply);
}

}  // namespace kolo::internal::messenger
