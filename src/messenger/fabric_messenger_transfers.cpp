// SPDX-License-Identifier: Apache-2.0
// Sends messages as transfers of libfabric, and makes messages of arriving transfers.
#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "messenger/fabric_messenger.hpp"

namespace kolo::internal::messenger {

/// Sends the message at once if the receiver's window has room for it. Otherwise announces it and
/// keeps it until the receiver asks for it. Both kinds of headers leave in the order of the calls,
/// so messages with the same tag keep their order.
void FabricMessenger::send(FabricChannel& channel, int rank, Tag tag, const std::byte* data,
                           std::int64_t bytes, Token token) {
  ++channel.under_way_;
  ++under_way_;
  Peer& peer = peers_.at(static_cast<std::size_t>(rank));
  ++peer.under_way;
  if (!peer.endpoint) return report_loss(peer, "before a transfer");  // the transfer never ends
  if (bytes <= window_ - (peer.sent_unasked - peer.consumed_there)) {
    peer.sent_unasked += bytes;
    return put(peer, {{Kind::data, 0, tag, bytes, 0}, data, &channel, token});
  }
  const std::uint32_t id = peer.next_id++;
  peer.offers.push_back({id, data, bytes, &channel, token});
  put_note(peer, Kind::announce, id, tag, bytes);
}

/// Matches the oldest message with the tag, which may have arrived, be arriving, or be announced.
/// If there is none, the receive waits in the inbox.
void FabricMessenger::receive(const Receive& receive, int rank) {
  ++receive.channel->under_way_;
  ++under_way_;
  Peer& peer = peers_.at(static_cast<std::size_t>(rank));
  ++peer.under_way;
  if (!peer.endpoint) return report_loss(peer, "before a transfer");
  Arrival* const arrival = peer.inbox.find_arrival(receive.tag);
  if (arrival == nullptr) return peer.inbox.add(receive);
  if (!fits(peer, receive, arrival->bytes)) return;
  switch (arrival->state) {
    case Arrival::State::arriving: arrival->receive = receive; return;
    case Arrival::State::whole:
      deliver(peer, receive, arrival->buffer.get(), arrival->bytes);
      break;
    case Arrival::State::announced:
      peer.inbox.grant(arrival->id, receive);
      put_note(peer, Kind::grant, arrival->id);
      break;
  }
  peer.inbox.remove(*arrival);
}

/// Ranks that disagree about the size of a message cannot continue, so the connection counts as
/// lost.
bool FabricMessenger::fits(Peer& peer, const Receive& receive, std::int64_t bytes) {
  if (receive.bytes == bytes) return true;
  lose(peer, fmt::format("{} bytes came where {} are received", bytes, receive.bytes));
  return false;
}

void FabricMessenger::deliver(Peer& peer, const Receive& receive, const std::byte* data,
                              std::int64_t bytes) {
  std::memcpy(receive.data, data, static_cast<std::size_t>(bytes));
  finish(peer, receive.channel, receive.token);
  consume(peer, bytes);
}

/// Reports consumed bytes to the sender before its window is exhausted.
void FabricMessenger::consume(Peer& peer, std::int64_t bytes) {
  peer.consumed_here += bytes;
  // Every header reports consumed bytes, so a waiting one makes a separate report unnecessary.
  const bool waits =
      std::ranges::any_of(peer.outbox, [](const Outgoing& one) { return !one.header_sent; });
  if (!waits && peer.consumed_here - peer.consumed_reported >= window_ / 4)
    put_note(peer, Kind::consumed);
}

void FabricMessenger::take_header(Peer& peer, std::size_t bytes) {
  TaggedHeader tagged{};
  if (bytes < sizeof tagged) return lose(peer, "a message is too short");
  std::memcpy(&tagged, peer.header_buffer.data(), sizeof tagged);
  const std::span message = std::span(peer.header_buffer).first(bytes).subspan(sizeof tagged.tag);
  if (!peer.received.open_header(message, sizeof(Header), tagged.tag)) return refuse(peer);
  peer.received.advance();
  Header header{};
  std::memcpy(&header, message.data(), sizeof header);
  if (header.bytes < 0 || header.bytes > std::numeric_limits<std::int32_t>::max())
    return lose(peer, "a message has no meaning");
  // Every header opens this side's window by the bytes that the peer has consumed.
  peer.consumed_there = header.consumed;
  // If a payload follows, the receive for it is posted in place of one for the next header.
  const std::span content = message.subspan(sizeof header);
  switch (header.kind) {
    case Kind::data:
      if (header.bytes > max_inline) return expect_payload(peer, header);
      if (static_cast<std::int64_t>(content.size()) != header.bytes)
        return lose(peer, "a message has another length than it says");
      take_inline(peer, header, content.data());
      break;
    case Kind::announce: take_announcement(peer, header); break;
    case Kind::grant: take_grant(peer, header.id); break;
    case Kind::payload: return expect_payload(peer, header);
    case Kind::consumed: break;
    case Kind::goodbye: peer.said_goodbye = true; break;
    default: return lose(peer, "a message has no meaning");
  }
  post_header_receive(peer);
}

void FabricMessenger::take_inline(Peer& peer, const Header& header, const std::byte* data) {
  if (const auto receive = peer.inbox.take_receive(header.tag)) {
    if (fits(peer, *receive, header.bytes)) deliver(peer, *receive, data, header.bytes);
    return;
  }
  Arrival arrival{header.tag, header.bytes, Arrival::State::whole};
  arrival.buffer =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(header.bytes));
  std::memcpy(arrival.buffer.get(), data, static_cast<std::size_t>(header.bytes));
  peer.inbox.add(std::move(arrival));
}

void FabricMessenger::expect_payload(Peer& peer, const Header& header) {
  // libfabric fills posted receives in order, and the sender sends the payload right after its
  // header. So the next receive to be posted on this connection takes the payload: directly at its
  // destination, or in a buffer if no receive waits for it yet.
  const bool unasked = header.kind == Kind::data;
  peer.arriving_unasked = unasked ? header.bytes : 0;
  peer.target = unasked ? peer.inbox.take_receive(header.tag) : peer.inbox.take_granted(header.id);
  if (peer.target) {
    if (fits(peer, *peer.target, header.bytes))
      post_payload_receive(peer, peer.target->data, header.bytes);
    return;
  }
  if (!unasked || header.bytes > window_) return lose(peer, "a message has no meaning");
  peer.arriving = &peer.inbox.add({header.tag, header.bytes, Arrival::State::arriving});
  peer.arriving->buffer =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(header.bytes));
  post_payload_receive(peer, peer.arriving->buffer.get(), header.bytes);
}

void FabricMessenger::take_announcement(Peer& peer, const Header& header) {
  if (const auto receive = peer.inbox.take_receive(header.tag)) {
    if (!fits(peer, *receive, header.bytes)) return;
    peer.inbox.grant(header.id, *receive);
    return put_note(peer, Kind::grant, header.id);
  }
  peer.inbox.add({header.tag, header.bytes, Arrival::State::announced, header.id});
}

void FabricMessenger::take_grant(Peer& peer, std::uint32_t id) {
  const auto place = std::ranges::find(peer.offers, id, &Offer::id);
  if (place == peer.offers.end()) return lose(peer, "a message has no meaning");
  const Offer offer = *place;
  peer.offers.erase(place);
  put(peer, {{Kind::payload, id, 0, offer.bytes, 0}, offer.data, offer.channel, offer.token});
}

void FabricMessenger::take_payload(Peer& peer) {
  if (peer.received.encrypts()) {
    const auto [data, bytes] = peer.target
                                   ? std::pair(peer.target->data, peer.target->bytes)
                                   : std::pair(peer.arriving->buffer.get(), peer.arriving->bytes);
    if (!peer.received.decrypt({data, static_cast<std::size_t>(bytes)}, peer.payload_tag))
      return refuse(peer);
    peer.received.advance();
  }
  if (const auto target = std::exchange(peer.target, std::nullopt)) {
    finish(peer, target->channel, target->token);
    if (peer.arriving_unasked > 0) consume(peer, peer.arriving_unasked);
  } else if (Arrival* const arrival = std::exchange(peer.arriving, nullptr)) {
    arrival->state = Arrival::State::whole;
    // A receive was posted while the payload was on its way into the buffer.
    if (arrival->receive) {
      deliver(peer, *arrival->receive, arrival->buffer.get(), arrival->bytes);
      peer.inbox.remove(*arrival);
    }
  }
  post_header_receive(peer);
}

/// Appends to the outbox, so that messages leave in order even while libfabric's queue is full.
void FabricMessenger::put(Peer& peer, const Outgoing& outgoing) {
  if (!peer.endpoint) return;
  if (peer.outbox.empty()) ++blocked_;
  peer.outbox.push_back(outgoing);
  flush(peer);
}

/// Sends until the outbox is empty or libfabric's queue is full. `drive` tries again later for the
/// `blocked_` peers.
void FabricMessenger::flush(Peer& peer) {
  while (peer.endpoint && !peer.outbox.empty()) {
    const long result = post(peer, peer.outbox.front());
    if (result == -FI_EAGAIN) return;
    if (result < 0) return lose(peer, fabric_error(result));
    peer.outbox.pop_front();
    if (peer.outbox.empty()) --blocked_;
  }
}

/// Posts the header and the payload. If libfabric has no room for the payload, `header_sent` keeps
/// the header from being sent twice.
long FabricMessenger::post(Peer& peer, Outgoing& outgoing) {
  const bool has_payload = outgoing.data != nullptr;
  const bool is_inline = outgoing.header.kind == Kind::data && outgoing.header.bytes <= max_inline;
  if (!outgoing.header_sent) {
    if (const long result = post_header(peer, outgoing, is_inline); result < 0) return result;
    outgoing.header_sent = true;
  }
  return has_payload && !is_inline ? post_payload(peer, outgoing) : 0;
}

/// Encrypts the payload once, even if libfabric has no room for it at first.
long FabricMessenger::post_payload(Peer& peer, Outgoing& outgoing) {
  const bool encrypts = peer.sent.encrypts();
  Operation& operation = outgoing.payload != nullptr ? *outgoing.payload : take_operation();
  std::span payload(outgoing.data, static_cast<std::size_t>(outgoing.header.bytes));
  if (encrypts) {
    const std::span sealed = sealed_buffer(operation, payload.size() + sizeof(FabricSeal::Tag));
    if (outgoing.payload == nullptr) {
      const FabricSeal::Tag tag = peer.sent.encrypt(payload, sealed.data());
      std::ranges::copy(tag, sealed.last(sizeof tag).begin());
    }
    payload = sealed;
  }
  operation.kind = Operation::Kind::send_payload;
  operation.peer = &peer;
  operation.channel = outgoing.channel;
  operation.token = outgoing.token;
  const long result = ::fi_send(peer.endpoint.get(), payload.data(), payload.size(),
                                registered(operation, 0, payload.data(), payload.size(), FI_SEND),
                                0, &operation.context);
  operation.in_flight = result == 0;
  if (result == -FI_EAGAIN && encrypts)
    outgoing.payload = &operation;
  else if (result < 0)
    give_back(operation);
  else if (encrypts)
    peer.sent.advance();
  return result;
}

/// The first `bytes` of a buffer that the operation keeps, since a new one of this size would have
/// to be cleared by the system each time.
std::span<std::byte> FabricMessenger::sealed_buffer(Operation& operation, std::size_t bytes) {
  if (operation.sealed.size() < bytes) operation.sealed.resize(bytes);
  return std::span(operation.sealed).first(bytes);
}

long FabricMessenger::post_header(Peer& peer, Outgoing& outgoing, bool is_inline) {
  Operation& operation = take_operation();
  operation.kind = Operation::Kind::send_header;
  operation.peer = &peer;
  auto& [tag, header] = operation.header;
  header = outgoing.header;
  header.consumed = peer.consumed_here;
  operation.channel = is_inline ? outgoing.channel : nullptr;
  operation.token = outgoing.token;
  const std::size_t inline_bytes = is_inline ? static_cast<std::size_t>(header.bytes) : 0;
  std::array<iovec, 2> parts{iovec{&operation.header, sizeof operation.header},
                             iovec{const_cast<std::byte*>(outgoing.data), inline_bytes}};
  if (peer.sent.encrypts()) {
    const std::span sealed = sealed_buffer(operation, sizeof header + inline_bytes);
    std::memcpy(sealed.data(), &header, sizeof header);
    if (is_inline) std::memcpy(sealed.data() + sizeof header, outgoing.data, inline_bytes);
    tag = peer.sent.seal_header(sealed, sizeof header);
    parts = {iovec{&tag, sizeof tag}, iovec{sealed.data(), sealed.size()}};
  } else {
    tag = peer.sent.seal_header(std::as_writable_bytes(std::span(&header, 1)), sizeof header);
  }
  const std::size_t count = parts[1].iov_len > 0 ? 2 : 1;
  std::array<void*, 2> descriptors{};
  for (std::size_t i = 0; i < count; ++i)
    descriptors[i] = registered(operation, i, parts[i].iov_base, parts[i].iov_len, FI_SEND);
  const long result = ::fi_sendv(peer.endpoint.get(), parts.data(), descriptors.data(), count, 0,
                                 &operation.context);
  operation.in_flight = result == 0;
  if (result < 0)
    give_back(operation);
  else {
    peer.sent.advance();
    peer.consumed_reported = header.consumed;
  }
  return result;
}

void FabricMessenger::post_header_receive(Peer& peer) {
  if (!peer.endpoint) return;
  peer.receiving.kind = Operation::Kind::receive_header;
  const std::size_t bytes = peer.header_buffer.size();
  const long result =
      ::fi_recv(peer.endpoint.get(), peer.header_buffer.data(), bytes,
                registered(peer.receiving, 0, peer.header_buffer.data(), bytes, FI_RECV), 0,
                &peer.receiving.context);
  if (result < 0) lose(peer, fabric_error(result));
}

void FabricMessenger::post_payload_receive(Peer& peer, std::byte* data, std::int64_t bytes) {
  peer.receiving.kind = Operation::Kind::receive_payload;
  const std::array<iovec, 2> parts{iovec{data, static_cast<std::size_t>(bytes)},
                                   iovec{&peer.payload_tag, sizeof peer.payload_tag}};
  const std::size_t count = peer.received.encrypts() ? 2 : 1;
  std::array<void*, 2> descriptors{};
  for (std::size_t i = 0; i < count; ++i)
    descriptors[i] = registered(peer.receiving, i, parts[i].iov_base, parts[i].iov_len, FI_RECV);
  const long result = ::fi_recvv(peer.endpoint.get(), parts.data(), descriptors.data(), count, 0,
                                 &peer.receiving.context);
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

}  // namespace kolo::internal::messenger
