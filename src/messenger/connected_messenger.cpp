// SPDX-License-Identifier: Apache-2.0
#include "messenger/connected_messenger.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;

// A loss is reported only after these times: a control message may arrive that states the cause and
// names the rank that is at fault.
constexpr std::chrono::milliseconds time_for_the_reason{500};
constexpr std::chrono::milliseconds time_for_the_goodbye{3000};

}  // namespace

void ConnectedChannel::send(int peer, Tag tag, const std::byte* data, std::int64_t bytes,
                            Token token) {
  messenger_.send(*this, peer, tag, data, bytes, token);
}

void ConnectedChannel::receive(int peer, Tag tag, std::byte* data, std::int64_t bytes,
                               Token token) {
  messenger_.receive({this, token, tag, data, bytes}, peer);
}

void ConnectedChannel::progress(std::vector<Token>& done) {
  messenger_.drive();
  messenger_.uncollected_ -= static_cast<int>(done_.size());
  done.insert(done.end(), done_.begin(), done_.end());
  done_.clear();
}

ConnectedMessenger::ConnectedMessenger(int rank, std::size_t ranks)
    : rank_(rank),
      window_(window_among(static_cast<int>(ranks))),
      peers_(ranks),
      buffers_(2 * static_cast<std::size_t>(window_)) {
  for (std::size_t other = 0; other < ranks; ++other) peers_[other].rank = static_cast<int>(other);
}

Channel& ConnectedMessenger::open() {
  if (free_channels_.empty()) {
    free_channels_.reserve(channels_.size() + 1);  // `release` must not throw
    free_channels_.push_back(&channels_.emplace_back(*this));
  }
  ConnectedChannel& channel = *free_channels_.back();
  free_channels_.pop_back();
  return channel;
}

bool ConnectedMessenger::release(Channel& given) noexcept {
  auto& channel = static_cast<ConnectedChannel&>(given);
  if (channel.under_way_ > 0 && !closed_) {
    for (Peer& peer : peers_)
      if (peer.connected) {
        // Receives without a message can be withdrawn. If a transfer with the peer has begun, only
        // closing the connection keeps the network from accessing the channel's memory.
        peer.under_way -= peer.inbox.withdraw(channel);
        if (peer.inbox.receives(channel) || sends(peer, channel) ||
            (peer.target && peer.target->channel == &channel))
          give_up(peer);
      }
  }
  under_way_ -= std::exchange(channel.under_way_, 0);
  uncollected_ -= static_cast<int>(channel.done_.size());
  channel.done_.clear();
  free_channels_.push_back(&channel);
  return true;
}

bool ConnectedMessenger::sends(const Peer& peer, const ConnectedChannel& channel) const {
  const auto is_its = [&](const auto& one) { return one.channel == &channel; };
  return std::ranges::any_of(peer.outbox, is_its) || std::ranges::any_of(peer.offers, is_its) ||
         network_sends(peer, channel);
}

bool ConnectedMessenger::progress() {
  // The step of a channel has already driven all transfers since the last call.
  if (std::exchange(driven_, false)) return false;
  const bool moved = drive();
  driven_ = false;
  return moved;
}

bool ConnectedMessenger::drive() {
  if (closed_) return false;
  driven_ = true;
  return drive_network();
}

bool ConnectedMessenger::may_sleep() {
  if (closed_) return true;
  const bool is_idle = network_may_sleep();
  // Uncollected tokens are work that no descriptor shows.
  return is_idle && uncollected_ == 0;
}

const Failure* ConnectedMessenger::loss() const {
  if (!loss_ || std::chrono::steady_clock::now() < loss_counts_at_) return nullptr;
  return &*loss_;
}

void ConnectedMessenger::close(std::chrono::nanoseconds patience) noexcept {
  if (closed_) return;
  try {
    for (Peer& peer : peers_)
      if (peer.connected) put_note(peer, Kind::goodbye);
    if (patience > 0ns) wait_for_goodbyes(std::chrono::steady_clock::now() + patience);
  } catch (const std::exception&) {  // the connections are closed anyway
  }
  closed_ = true;
  // Closing the connections ends the transfers without completions.
  for (Peer& peer : peers_)
    if (std::exchange(peer.connected, false)) disconnect(peer);
  close_network();
}

bool ConnectedMessenger::awaits_goodbyes() const {
  return std::ranges::any_of(peers_, [&](const Peer& peer) {
    return peer.connected && (!peer.said_goodbye || !peer.outbox.empty() || !has_sent_all(peer));
  });
}

void ConnectedMessenger::wait_for_goodbyes(TimePoint until) {
  std::vector<pollfd> waiting;
  for (const int descriptor : descriptors())
    waiting.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  while (awaits_goodbyes()) {
    if (drive()) continue;
    if (std::chrono::steady_clock::now() >= until) return;
    if (network_may_sleep()) ::poll(waiting.data(), waiting.size(), 5);
  }
}

/// Sends the message at once if the receiver's window has room for it. Otherwise announces it and
/// keeps it until the receiver asks for it. Both kinds of headers leave in the order of the calls,
/// so messages with the same tag keep their order.
void ConnectedMessenger::send(ConnectedChannel& channel, int rank, Tag tag, const std::byte* data,
                              std::int64_t bytes, Token token) {
  ++channel.under_way_;
  ++under_way_;
  Peer& peer = peers_.at(static_cast<std::size_t>(rank));
  ++peer.under_way;
  if (!peer.connected) return report_loss(peer, "before a transfer");  // the transfer never ends
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
void ConnectedMessenger::receive(const Receive& receive, int rank) {
  ++receive.channel->under_way_;
  ++under_way_;
  Peer& peer = peers_.at(static_cast<std::size_t>(rank));
  ++peer.under_way;
  if (!peer.connected) return report_loss(peer, "before a transfer");
  Arrival* const arrival = peer.inbox.find_arrival(receive.tag);
  if (arrival == nullptr) return peer.inbox.add(receive);
  if (!fits(peer, receive, arrival->bytes)) return;
  switch (arrival->state) {
    case Arrival::State::arriving: arrival->receive = receive; return;
    case Arrival::State::whole:
      deliver(peer, receive, arrival->buffer.data(), arrival->bytes);
      break;
    case Arrival::State::announced:
      peer.inbox.grant(arrival->id, receive);
      put_note(peer, Kind::grant, arrival->id);
      break;
  }
  buffers_.give_back(peer.inbox.remove(*arrival));
}

/// Ranks that disagree about the size of a message cannot continue, so the connection counts as
/// lost.
bool ConnectedMessenger::fits(Peer& peer, const Receive& receive, std::int64_t bytes) {
  if (receive.bytes == bytes) return true;
  lose(peer, fmt::format("{} bytes came where {} are received", bytes, receive.bytes));
  return false;
}

void ConnectedMessenger::deliver(Peer& peer, const Receive& receive, const std::byte* data,
                                 std::int64_t bytes) {
  std::memcpy(receive.data, data, static_cast<std::size_t>(bytes));
  finish(peer, receive.channel, receive.token);
  consume(peer, bytes);
}

/// Reports consumed bytes to the sender before its window is exhausted. Every header reports them,
/// so one that waits in the outbox makes a separate report unnecessary.
void ConnectedMessenger::consume(Peer& peer, std::int64_t bytes) {
  peer.consumed_here += bytes;
  if (peer.outbox.empty() && peer.consumed_here - peer.consumed_reported >= window_ / 4)
    put_note(peer, Kind::consumed);
}

void ConnectedMessenger::take_header(Peer& peer, const Header& header,
                                     std::span<const std::byte> content) {
  if (header.bytes < 0 || header.bytes > std::numeric_limits<std::int32_t>::max())
    return lose(peer, "a message has no meaning");
  // Every header opens this side's window by the bytes that the peer has consumed.
  peer.consumed_there = header.consumed;
  switch (header.kind) {
    case Kind::data:
      if (content.empty() && header.bytes > 0) return expect_payload(peer, header);
      take_inline(peer, header, content);
      break;
    case Kind::announce: take_announcement(peer, header); break;
    case Kind::grant: take_grant(peer, header.id); break;
    case Kind::payload: return expect_payload(peer, header);
    case Kind::consumed: break;
    case Kind::goodbye: peer.said_goodbye = true; break;
    default: return lose(peer, "a message has no meaning");
  }
  if (peer.connected) await_header(peer);
}

void ConnectedMessenger::take_inline(Peer& peer, const Header& header,
                                     std::span<const std::byte> data) {
  if (const auto receive = peer.inbox.take_receive(header.tag)) {
    if (fits(peer, *receive, header.bytes)) deliver(peer, *receive, data.data(), header.bytes);
    return;
  }
  Arrival arrival{header.tag, header.bytes, Arrival::State::whole};
  arrival.buffer = buffers_.take(data.size());
  std::ranges::copy(data, arrival.buffer.data());
  peer.inbox.add(std::move(arrival));
}

/// The sender sends the payload right after its header, so it is the next message: directly to its
/// destination, or to a buffer if no receive waits for it yet.
void ConnectedMessenger::expect_payload(Peer& peer, const Header& header) {
  const bool unasked = header.kind == Kind::data;
  const auto bytes = static_cast<std::size_t>(header.bytes);
  peer.arriving_unasked = unasked ? header.bytes : 0;
  peer.target = unasked ? peer.inbox.take_receive(header.tag) : peer.inbox.take_granted(header.id);
  if (peer.target) {
    if (fits(peer, *peer.target, header.bytes)) await_payload(peer, {peer.target->data, bytes});
    return;
  }
  if (!unasked || header.bytes > window_) return lose(peer, "a message has no meaning");
  peer.arriving = &peer.inbox.add({header.tag, header.bytes, Arrival::State::arriving});
  peer.arriving->buffer = buffers_.take(bytes);
  await_payload(peer, {peer.arriving->buffer.data(), bytes});
}

void ConnectedMessenger::take_announcement(Peer& peer, const Header& header) {
  if (const auto receive = peer.inbox.take_receive(header.tag)) {
    if (!fits(peer, *receive, header.bytes)) return;
    peer.inbox.grant(header.id, *receive);
    return put_note(peer, Kind::grant, header.id);
  }
  peer.inbox.add({header.tag, header.bytes, Arrival::State::announced, header.id});
}

void ConnectedMessenger::take_grant(Peer& peer, std::uint32_t id) {
  const auto place = std::ranges::find(peer.offers, id, &Offer::id);
  if (place == peer.offers.end()) return lose(peer, "a message has no meaning");
  const Offer offer = *place;
  peer.offers.erase(place);
  put(peer, {{Kind::payload, id, 0, offer.bytes, 0}, offer.data, offer.channel, offer.token});
}

void ConnectedMessenger::take_payload(Peer& peer) {
  if (const auto target = std::exchange(peer.target, std::nullopt)) {
    finish(peer, target->channel, target->token);
    if (peer.arriving_unasked > 0) consume(peer, peer.arriving_unasked);
  } else if (Arrival* const arrival = std::exchange(peer.arriving, nullptr)) {
    arrival->state = Arrival::State::whole;
    // A receive was posted while the payload was on its way into the buffer.
    if (arrival->receive) {
      deliver(peer, *arrival->receive, arrival->buffer.data(), arrival->bytes);
      buffers_.give_back(peer.inbox.remove(*arrival));
    }
  }
  if (peer.connected) await_header(peer);
}

/// Appends to the outbox, so that messages leave in order even while the network takes none.
void ConnectedMessenger::put(Peer& peer, const Outgoing& outgoing) {
  if (!peer.connected) return;
  peer.outbox.push_back(outgoing);
  flush(peer);
}

void ConnectedMessenger::finish(Peer& peer, ConnectedChannel* channel, Token token) {
  if (channel == nullptr) return;
  channel->done_.push_back(token);
  --peer.under_way;
  --channel->under_way_;
  --under_way_;
  ++uncollected_;
}

void ConnectedMessenger::lose(Peer& peer, const std::string& reason) {
  if (!peer.connected) return;
  drop(peer);
  // After a goodbye, the end of a connection counts as a loss only if transfers are unfinished.
  if (!peer.said_goodbye || peer.under_way > 0)
    report_loss(peer, fmt::format("the data connection to rank {} was lost ({}): its process ended "
                                  "or its host is unreachable",
                                  peer.rank, reason));
}

/// Closes the connection after an abandoned transfer: the peer may send data that no receive
/// expects.
void ConnectedMessenger::give_up(Peer& peer) {
  if (!peer.connected) return;
  drop(peer);
  if (!peer.said_goodbye || peer.under_way > 0)
    report_loss(
        peer, fmt::format(
                  "this rank closed the data connection to rank {} because it abandoned a transfer",
                  peer.rank));
}

void ConnectedMessenger::refuse(Peer& peer) {
  if (!peer.connected) return;
  drop(peer);
  report_loss(peer, fmt::format("the data connection to rank {} was closed because one of its "
                                "messages was altered, lost or repeated on the way",
                                peer.rank));
}

void ConnectedMessenger::drop(Peer& peer) {
  peer.connected = false;
  disconnect(peer);
  peer.outbox.clear();
}

void ConnectedMessenger::report_loss(const Peer& peer, std::string message) {
  if (closed_ || loss_) return;
  // A peer that said goodbye is alive and will report why it has left, so it gets more time.
  loss_counts_at_ = std::chrono::steady_clock::now() +
                    (peer.said_goodbye ? time_for_the_goodbye : time_for_the_reason);
  loss_ = Failure{FailureKind::peer_left, std::move(message), "", RankSet::of(peer.rank)};
}

}  // namespace kolo::internal::messenger
