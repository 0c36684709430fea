// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/connections.hpp"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// The oldest stranger of those who have sent nothing, or of those who have begun a handshake if
/// they are too many. Anyone can begin one, but the ranks of a large job all begin at the same
/// time. So whoever fills the table with strangers of one kind closes his own connections.
std::optional<Link> Connections::next_evicted() const {
  const auto ranks = static_cast<std::size_t>(options_.max_np);
  if (strangers_.size() < options_.max_strangers + ranks) return std::nullopt;
  const auto in_handshake = [&](const auto& entry) {
    return peers_.at(entry.first).handshake.has_value();
  };
  const auto begun = static_cast<std::size_t>(std::ranges::count_if(strangers_, in_handshake));
  const bool are_too_many = begun > options_.max_strangers / 2 + ranks;
  return std::ranges::min_element(strangers_, {},
                                  [&](const auto& entry) {
                                    return std::tuple(in_handshake(entry) != are_too_many,
                                                      entry.second, entry.first);
                                  })
      ->first;
}

void Connections::open(Link link, const std::string& from, Time now) {
  if (const auto evicted = next_evicted()) {
    note_refusal(peers_.at(*evicted).from, "too many connections have not identified themselves",
                 now);
    close(*evicted);
  }
  peers_[link].from = from;
  strangers_.emplace(link, now);
}

const Peer* Connections::find(Link link) const {
  const auto found = peers_.find(link);
  return found == peers_.end() ? nullptr : &found->second;
}

std::optional<Hello> Connections::identify(Link link, const Message& message, Time now) {
  Peer& peer = peers_.at(link);
  if (const auto* const step = std::get_if<HandshakeStep>(&message)) {
    shake_hands(link, *step, now);
    return std::nullopt;
  }
  const auto* const hello = std::get_if<Hello>(&message);
  if (!peer.handshake)
    refuse(link, "it does not begin with a handshake", now);
  else if (!peer.handshake->is_trusted())
    refuse(link, "the secret is wrong", now);
  else if (hello == nullptr)
    refuse(link, "its first message after the handshake is not a hello", now);
  else
    return peer.hello = *hello;
  return std::nullopt;
}

void Connections::shake_hands(Link link, const HandshakeStep& step, Time now) {
  std::optional<transport::Handshake>& handshake = peers_.at(link).handshake;
  if (!handshake) {
    transport::Nonce nonce;
    for (std::byte& byte : nonce) byte = static_cast<std::byte>(random_());
    handshake.emplace(transport::Handshake::Side::callee, options_.secret,
                      transport::Parties{.kind = transport::Parties::Kind::rendezvous}, nonce);
  }
  const auto answer = handshake->answer(step.bytes);
  if (!answer)
    refuse(link, "the secret is wrong", now);
  else if (handshake->is_trusted())
    actions_.authenticate(link, handshake->keys());
  else
    actions_.send(link, HandshakeStep{*answer});
}

void Connections::admit(Link link, Role role, ProcessId process) {
  strangers_.erase(link);
  Peer& peer = peers_.at(link);
  peer.role = role;
  peer.process = process;
}

void Connections::turn_away(Link link, const Refusal& refusal, Time now) {
  const Peer& peer = peers_.at(link);
  // An agent that may retry does so many times, so log only its first refusal.
  const bool is_news = refusal.retry == Time{} || put_off_.insert(peer.hello->process).second;
  if (is_news) note_refusal(peer.from, refusal.reason, now);
  actions_.send(link, refusal);
  close(link);
}

void Connections::refuse_late(Time now) {
  std::vector<Link> late;
  for (const auto& [link, opened] : strangers_)
    if (now >= opened + options_.hello_timeout) late.push_back(link);
  for (const Link link : late) refuse(link, "it does not identify itself", now);
}

std::optional<Time> Connections::next_time() const {
  if (strangers_.empty()) return std::nullopt;
  const auto oldest =
      std::ranges::min_element(strangers_, {}, [](const auto& entry) { return entry.second; });
  return oldest->second + options_.hello_timeout;
}

std::optional<Peer> Connections::drop(Link link, const std::string& reason, Time now) {
  const auto found = peers_.find(link);
  if (found == peers_.end()) return std::nullopt;
  Peer peer = std::move(found->second);
  peers_.erase(found);
  strangers_.erase(link);
  if (peer.role) return std::optional(std::move(peer));
  note_refusal(peer.from,
               peer.handshake && !peer.handshake->is_trusted()
                   ? "the secret is wrong, or it gave up: " + reason
                   : reason,
               now);
  return std::nullopt;
}

void Connections::close(Link link) {
  actions_.close(link);
  peers_.erase(link);
  strangers_.erase(link);
}

void Connections::send_to_admitted(const std::shared_ptr<const Message>& message) {
  for (const auto& [link, peer] : peers_)
    if (peer.role) actions_.send(link, message);
}

void Connections::refuse(Link link, const std::string& reason, Time now) {
  note_refusal(peers_.at(link).from, reason, now);
  actions_.send(link, Refusal{reason});
  close(link);
}

void Connections::note_refusal(const std::string& from, const std::string& reason, Time now) {
  if (auto line = refusals_.line(from, reason, now))
    actions_.note(LogLevel::warning, std::move(*line));
}

}  // namespace kolo::internal::rendezvous
