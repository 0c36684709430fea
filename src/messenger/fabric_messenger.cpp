// SPDX-License-Identifier: Apache-2.0
#include "messenger/fabric_messenger.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <type_traits>
#include <utility>

namespace kolo::internal::messenger {
namespace {

constexpr unsigned calls_between_events = 64;
constexpr int max_reads = 4;  // reads of the completion queue per call

}  // namespace

FabricMessenger::FabricMessenger(FabricDomain domain, int rank, Endpoints endpoints)
    : ConnectedMessenger(rank, endpoints.size()),
      domain_(std::move(domain)),
      not_inherited_{node::NotInherited(domain_.event_descriptor()),
                     node::NotInherited(domain_.completion_descriptor())},
      links_(endpoints.size()) {
  for (std::size_t other = 0; other < endpoints.size(); ++other) {
    Peer& peer = peers()[other];
    Link& link = links_[other];
    link.endpoint = std::move(endpoints[other].endpoint);
    if (!link.endpoint) continue;
    peer.connected = true;
    peer.sent = MessageSeal(endpoints[other].keys.sent);
    peer.received = MessageSeal(endpoints[other].keys.received);
    link.receiving.peer = peer.rank;
    link.header_buffer.resize(sizeof(TaggedHeader) + max_inline);
    FabricMessenger::await_header(peer);
  }
}

FabricMessenger::~FabricMessenger() { close(std::chrono::nanoseconds(0)); }

std::vector<int> FabricMessenger::descriptors() const {
  return {domain_.event_descriptor(), domain_.completion_descriptor()};
}

bool FabricMessenger::network_may_sleep() {
  read_events();
  std::array<fid*, 2> queues{&domain_.events->fid, &domain_.completions->fid};
  return ::fi_trywait(domain_.fabric.get(), queues.data(), queues.size()) == FI_SUCCESS;
}

bool FabricMessenger::network_sends(const Peer& peer, const ConnectedChannel& channel) const {
  const Link& link = link_of(peer);
  return (link.payload && link.payload->channel == &channel) ||
         std::ranges::any_of(operations_, [&](const Operation& operation) {
           return operation.in_flight && operation.peer == peer.rank &&
                  operation.channel == &channel;
         });
}

bool FabricMessenger::drive_network() {
  const bool moved = read_completions();
  // Events are rare, so most calls without completions do not look for them.
  if (!moved && ++quiet_ % calls_between_events == 0) read_events();
  if (std::exchange(is_full_, false))
    for (Peer& peer : peers()) flush(peer);
  return moved;
}

bool FabricMessenger::read_completions() {
  std::array<fi_cq_msg_entry, 16> entries;
  bool moved = false;
  for (int read = 0; read < max_reads; ++read) {
    errno = 0;  // as in `read_event`
    const auto count = ::fi_cq_read(domain_.completions.get(), entries.data(), entries.size());
    if (count == -FI_EAGAIN) break;
    moved = true;
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      if (::fi_cq_readerr(domain_.completions.get(), &error, 0) > 0 && error.op_context != nullptr)
        lose(peer_of(static_cast<Operation*>(error.op_context)->peer), fabric_error(-error.err));
      continue;
    }
    check_fabric(count, "fi_cq_read");
    for (std::size_t at = 0; at < static_cast<std::size_t>(count); ++at)
      complete(*static_cast<Operation*>(entries[at].op_context), entries[at].len);
  }
  return moved;
}

// The event queue sometimes fails to report the loss of a peer; the errors of transfers then show
// it.
void FabricMessenger::read_events() {
  // Strangers may call without end.
  constexpr int most = 64;
  FabricEvent event;
  for (int read = 0; read < most && read_event(*domain_.events.get(), event); ++read, event = {}) {
    if (event.info) domain_.refuse(*event.info);
    if (event.error.empty() && event.kind != FI_SHUTDOWN) continue;
    // Messages that the peer sent before it closed come first, such as a goodbye.
    while (!closed() && read_completions()) continue;
    for (Peer& peer : peers())
      if (peer.connected && &link_of(peer).endpoint->fid == event.object)
        lose(peer, event.error.empty() ? "it was shut down" : event.error);
  }
}

void FabricMessenger::complete(Operation& operation, std::size_t bytes) {
  Peer& peer = peer_of(operation.peer);
  operation.in_flight = false;
  if (!peer.connected) return;
  switch (operation.kind) {
    case Operation::Kind::send_header:
    case Operation::Kind::send_payload:
      finish(peer, operation.channel, operation.token);
      give_back(operation);
      break;
    case Operation::Kind::receive_header: take_message(peer, bytes); break;
    case Operation::Kind::receive_payload: take_payload(peer); break;
  }
}

void FabricMessenger::take_message(Peer& peer, std::size_t bytes) {
  const std::span message = std::span(link_of(peer).header_buffer).first(bytes);
  TaggedHeader tagged{};
  if (bytes < sizeof tagged) return lose(peer, "a message is too short");
  std::memcpy(&tagged, message.data(), sizeof tagged);
  auto& [tag, header] = tagged;
  if (!peer.received.open_header(std::as_writable_bytes(std::span(&header, 1)), tag))
    return refuse(peer);
  peer.received.advance();
  const std::span content = message.subspan(sizeof tagged);
  if (static_cast<std::int64_t>(content.size()) != (is_inline(header) ? header.bytes : 0))
    return lose(peer, "a message has another length than it says");
  take_header(peer, header, content);
}

/// Sends until nothing is left or libfabric's queue is full.
void FabricMessenger::flush(Peer& peer) {
  while (peer.connected && (link_of(peer).payload || !peer.outbox.empty())) {
    const long result = post_first(peer);
    if (result == -FI_EAGAIN) {
      is_full_ = true;
      return;
    }
    if (result < 0) return lose(peer, fabric_error(result));
  }
}

/// Posts the payload whose header was sent, or the first header of the outbox.
long FabricMessenger::post_first(Peer& peer) {
  Link& link = link_of(peer);
  if (link.payload) {
    const long result = post_payload(peer, *link.payload);
    if (result == 0) link.payload.reset();
    return result;
  }
  const Outgoing& first = peer.outbox.front();
  const long result = post_header(peer, first);
  if (result < 0) return result;
  if (first.data != nullptr && !is_inline(first.header)) link.payload = first;
  peer.outbox.pop_front();
  return result;
}

long FabricMessenger::post_header(Peer& peer, const Outgoing& outgoing) {
  const bool has_content = is_inline(outgoing.header) && outgoing.header.bytes > 0;
  Operation& operation = take_operation();
  operation.kind = Operation::Kind::send_header;
  operation.peer = peer.rank;
  auto& [tag, header] = operation.header;
  header = outgoing.header;
  header.consumed = peer.consumed_here;
  tag = peer.sent.seal_header(std::as_writable_bytes(std::span(&header, 1)));
  operation.channel = is_inline(header) ? outgoing.channel : nullptr;
  operation.token = outgoing.token;
  const std::array<iovec, 2> parts{
      iovec{&operation.header, sizeof operation.header},
      iovec{const_cast<std::byte*>(outgoing.data), static_cast<std::size_t>(header.bytes)}};
  const std::size_t count = has_content ? 2 : 1;
  std::array<void*, 2> descriptors{};
  for (std::size_t i = 0; i < count; ++i)
    descriptors[i] = registered(operation, i, parts[i].iov_base, parts[i].iov_len, FI_SEND);
  const long result = ::fi_sendv(link_of(peer).endpoint.get(), parts.data(), descriptors.data(),
                                 count, 0, &operation.context);
  operation.in_flight = result == 0;
  if (result < 0) {
    give_back(operation);
  } else {
    peer.sent.advance();
    peer.consumed_reported = header.consumed;
  }
  return result;
}

long FabricMessenger::post_payload(Peer& peer, const Outgoing& outgoing) {
  Operation& operation = take_operation();
  operation.kind = Operation::Kind::send_payload;
  operation.peer = peer.rank;
  operation.channel = outgoing.channel;
  operation.token = outgoing.token;
  const auto bytes = static_cast<std::size_t>(outgoing.header.bytes);
  const long result =
      ::fi_send(link_of(peer).endpoint.get(), outgoing.data, bytes,
                registered(operation, 0, outgoing.data, bytes, FI_SEND), 0, &operation.context);
  operation.in_flight = result == 0;
  if (result < 0) give_back(operation);
  return result;
}

void FabricMessenger::await_header(Peer& peer) {
  Link& link = link_of(peer);
  link.receiving.kind = Operation::Kind::receive_header;
  post_receive(peer, link.header_buffer);
}

void FabricMessenger::await_payload(Peer& peer, std::span<std::byte> payload) {
  link_of(peer).receiving.kind = Operation::Kind::receive_payload;
  post_receive(peer, payload);
}

void FabricMessenger::post_receive(Peer& peer, std::span<std::byte> message) {
  Link& link = link_of(peer);
  const long result =
      ::fi_recv(link.endpoint.get(), message.data(), message.size(),
                registered(link.receiving, 0, message.data(), message.size(), FI_RECV), 0,
                &link.receiving.context);
  if (result < 0) lose(peer, fabric_error(result));
}

void* FabricMessenger::registered(Operation& operation, std::size_t place, const void* data,
                                  std::size_t bytes, std::uint64_t access) const {
  if (!domain_.registers_memory()) return nullptr;
  FabricHandle<fid_mr>& memory = operation.memory[place];
  memory.reset();
  check_fabric(
      ::fi_mr_reg(domain_.domain.get(), data, bytes, access, 0, 0, 0, memory.out(), nullptr),
      "fi_mr_reg");
  return ::fi_mr_desc(memory.get());
}

FabricMessenger::Operation& FabricMessenger::take_operation() {
  static_assert(std::is_standard_layout_v<Operation>, "a context is the address of its operation");
  if (free_operations_.empty()) return operations_.emplace_back();
  Operation& operation = *free_operations_.back();
  free_operations_.pop_back();
  return operation;
}

void FabricMessenger::give_back(Operation& operation) {
  for (FabricHandle<fid_mr>& memory : operation.memory) memory.reset();
  operation.channel = nullptr;
  free_operations_.push_back(&operation);
}

void FabricMessenger::disconnect(Peer& peer) noexcept {
  Link& link = link_of(peer);
  link.endpoint.reset();
  link.payload.reset();
  // The transfers have ended, so their memory may be deregistered. The operations are not reused,
  // since the queue may still hold completions for them.
  for (Operation& operation : operations_)
    if (operation.peer == peer.rank && std::exchange(operation.in_flight, false))
      for (FabricHandle<fid_mr>& memory : operation.memory) memory.reset();
}

void FabricMessenger::close_network() noexcept {
  try {
    domain_.drain();  // otherwise the descriptors stay readable, and objects of unread events leak
  } catch (const std::exception&) {
  }
}

}  // namespace kolo::internal::messenger
