// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace kolo::internal::simulation {

using messenger::Tag;
using messenger::Token;

/// A send, until it has been received.
struct SimulatedNetwork::Message {
  int from = 0;
  int to = 0;
  Tag tag = 0;
  std::int64_t bytes = 0;
  const std::byte* data = nullptr;  // until it is sent
  RankChannel* sender = nullptr;
  Token token{};
  std::vector<std::byte> payload{};  // from then on
};

class SimulatedNetwork::RankChannel : public messenger::Channel {
 public:
  RankChannel(SimulatedNetwork& network, RankMessenger& owner) : network_(network), owner_(owner) {}

  void send(int peer, Tag tag, const std::byte* data, std::int64_t bytes, Token token) override;
  void receive(int peer, Tag tag, std::byte* data, std::int64_t bytes, Token token) override;
  void progress(std::vector<Token>& done) override;

  void complete(Token token, bool receives) {
    done_.push_back(token);
    if (receives) ++received_;
    --open;
  }

  int open = 0;  // transfers

 private:
  SimulatedNetwork& network_;
  RankMessenger& owner_;
  std::vector<Token> done_{};
  int received_ = 0;  // among those that are done
};

class SimulatedNetwork::RankMessenger : public messenger::Messenger {
 public:
  struct Receive {
    RankChannel* channel;
    std::byte* data;
    std::int64_t bytes;
    Token token;
  };
  /// Receives and messages of one sender with one tag, not matched yet: one of the queues is empty.
  struct Meeting {
    std::deque<Receive> receives{};
    std::deque<std::uint32_t> messages{};
  };

  RankMessenger(SimulatedNetwork& network, int rank) : network_(network), rank_(rank) {}

  [[nodiscard]] TimePoint now() const override {
    return TimePoint(network_.ranks_[static_cast<std::size_t>(rank_)].clock);
  }
  [[nodiscard]] std::string_view name() const override { return "simulated"; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return network_.size(); }
  [[nodiscard]] Tag tag_count() const override { return Tag{1} << 20; }
  [[nodiscard]] messenger::Channel& open() override {
    if (free_.empty()) free_.push_back(&channels_.emplace_back(network_, *this));
    RankChannel& channel = *free_.back();
    free_.pop_back();
    return channel;
  }
  [[nodiscard]] bool release(messenger::Channel& channel) noexcept override {
    auto& own = static_cast<RankChannel&>(channel);
    if (own.open > 0) return false;
    free_.push_back(&own);
    return true;
  }
  bool progress() override { return false; }
  [[nodiscard]] bool may_sleep() override { return true; }
  [[nodiscard]] bool uses_memory() const override { return false; }
  void close(std::chrono::nanoseconds /*patience*/) noexcept override {}

  void receive(int peer, Tag tag, const Receive& receive) {
    Meeting& meeting = meetings_[key(peer, tag)];
    if (meeting.messages.empty()) {
      meeting.receives.push_back(receive);
      return;
    }
    const std::uint32_t number = meeting.messages.front();
    meeting.messages.pop_front();
    deliver(number, receive);
  }
  void arrived(std::uint32_t number, const Message& message) {
    Meeting& meeting = meetings_[key(message.from, message.tag)];
    if (meeting.receives.empty()) {
      meeting.messages.push_back(number);
      return;
    }
    const Receive receive = meeting.receives.front();
    meeting.receives.pop_front();
    deliver(number, receive);
  }

 private:
  static std::uint64_t key(int peer, Tag tag) {
    return static_cast<std::uint64_t>(peer) << 32U | tag;
  }
  void deliver(std::uint32_t number, const Receive& receive) {
    const Message& message = *network_.messages_[number];
    if (message.bytes != receive.bytes)
      throw std::logic_error(fmt::format("rank {} receives {} bytes from rank {}, which sent {}",
                                         rank_, receive.bytes, message.from, message.bytes));
    std::memcpy(receive.data, message.payload.data(), message.payload.size());
    receive.channel->complete(receive.token, true);
    network_.give_back(number);
  }

  SimulatedNetwork& network_;
  int rank_;
  std::deque<RankChannel> channels_{};
  std::vector<RankChannel*> free_{};
  std::unordered_map<std::uint64_t, Meeting> meetings_{};
};

void SimulatedNetwork::RankChannel::send(int peer, Tag tag, const std::byte* data,
                                         std::int64_t bytes, Token token) {
  ++open;
  network_.post(owner_.rank(), peer, tag, data, bytes, *this, token);
}

void SimulatedNetwork::RankChannel::receive(int peer, Tag tag, std::byte* data, std::int64_t bytes,
                                            Token token) {
  ++open;
  owner_.receive(peer, tag, {this, data, bytes, token});
}

void SimulatedNetwork::RankChannel::progress(std::vector<Token>& done) {
  network_.ranks_[static_cast<std::size_t>(owner_.rank())].clock +=
      network_.model_.overhead * std::exchange(received_, 0);
  done.insert(done.end(), done_.begin(), done_.end());
  done_.clear();
}

SimulatedNetwork::SimulatedNetwork(const NetworkModel& model, std::vector<int> host_of)
    : model_(model), host_of_(std::move(host_of)), ranks_(host_of_.size()) {
  const auto hosts = static_cast<std::size_t>(*std::ranges::max_element(host_of_)) + 1;
  ranks_of_.resize(hosts);
  nics_.resize(hosts);
  traffic_.resize(hosts);
  for (int rank = 0; rank < size(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    ranks_[place].messenger = std::make_unique<RankMessenger>(*this, rank);
    ranks_of_[static_cast<std::size_t>(host_of_[place])].push_back(rank);
  }
}

SimulatedNetwork::~SimulatedNetwork() = default;

messenger::Messenger& SimulatedNetwork::messenger(int rank) {
  return *ranks_[static_cast<std::size_t>(rank)].messenger;
}

Time SimulatedNetwork::run(const std::function<bool(int)>& step) {
  for (Rank& rank : ranks_) rank.clock = now_;
  const Time begin = now_;
  for (int rank = 0; rank < size(); ++rank) ask_for_turn(rank, now_);
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    switch (event.kind) {
      case Event::Kind::turn: take_turn(static_cast<int>(event.what), step); break;
      case Event::Kind::sent: on_sent(*messages_[event.what]); break;
      case Event::Kind::head: on_head(event.what); break;
      case Event::Kind::arrived: on_arrived(event.what); break;
    }
  }
  for (const Rank& rank : ranks_) now_ = std::max(now_, rank.clock);
  return now_ - begin;
}

void SimulatedNetwork::push(Time at, Event::Kind kind, std::uint32_t what) {
  events_.push({at, next_order_++, kind, what});
}

void SimulatedNetwork::ask_for_turn(int rank, Time at) {
  Rank& own = ranks_[static_cast<std::size_t>(rank)];
  at = std::max(at, own.clock);
  if (own.turn_at <= at) return;
  own.turn_at = at;
  push(at, Event::Kind::turn, static_cast<std::uint32_t>(rank));
}

void SimulatedNetwork::take_turn(int rank, const std::function<bool(int)>& step) {
  Rank& own = ranks_[static_cast<std::size_t>(rank)];
  if (own.turn_at != now_) return;  // an earlier one came first
  own.turn_at = Time::max();
  own.clock = std::max(own.clock, now_);
  bool moved = false;
  while (step(rank)) moved = true;
  if (!moved) return;
  for (const int other :
       ranks_of_[static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank)])])
    if (other != rank) ask_for_turn(other, own.clock + model_.within_host);
}

/// The time in which a NIC does nothing else.
Time SimulatedNetwork::time_in_nic(std::int64_t bytes) const {
  const double wire = static_cast<double>(bytes) / model_.bytes_per_ns;
  return model_.ranks_per_nic * model_.gap +
         Time(static_cast<std::int64_t>(wire * model_.ranks_per_nic));
}

void SimulatedNetwork::post(int from, int to, Tag tag, const std::byte* data, std::int64_t bytes,
                            RankChannel& channel, Token token) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(messages_.size()));
    messages_.push_back(std::make_unique<Message>());
  }
  const std::uint32_t number = free_.back();
  free_.pop_back();
  Message& message = *messages_[number];
  message.from = from;
  message.to = to;
  message.tag = tag;
  message.bytes = bytes;
  message.data = data;
  message.sender = &channel;
  message.token = token;
  Rank& own = ranks_[static_cast<std::size_t>(from)];
  own.clock += model_.overhead;
  const int host = host_of_[static_cast<std::size_t>(from)];
  if (host == host_of_[static_cast<std::size_t>(to)]) {
    // The sender's processor copies it.
    const double copy = static_cast<double>(bytes) / model_.bytes_per_ns_within_host;
    own.clock += Time(static_cast<std::int64_t>(copy));
    push(own.clock, Event::Kind::sent, number);
    push(own.clock + model_.within_host, Event::Kind::arrived, number);
    return;
  }
  Time& sends_until = nics_[static_cast<std::size_t>(host)].sends_until;
  const Time begin = std::max(own.clock, sends_until);
  sends_until = begin + time_in_nic(bytes);
  push(sends_until, Event::Kind::sent, number);
  push(begin + model_.latency, Event::Kind::head, number);
  NicTraffic& traffic = traffic_[static_cast<std::size_t>(host)];
  traffic.messages_sent += model_.ranks_per_nic;
  traffic.bytes_sent += model_.ranks_per_nic * bytes;
}

/// From here on the sender may write its memory.
void SimulatedNetwork::on_sent(Message& message) {
  message.payload.assign(message.data, message.data + message.bytes);
  message.sender->complete(message.token, false);
  ask_for_turn(message.from, now_);
}

void SimulatedNetwork::on_head(std::uint32_t number) {
  const Message& message = *messages_[number];
  const int host = host_of_[static_cast<std::size_t>(message.to)];
  Time& receives_until = nics_[static_cast<std::size_t>(host)].receives_until;
  receives_until = std::max(now_, receives_until) + time_in_nic(message.bytes);
  push(receives_until, Event::Kind::arrived, number);
  NicTraffic& traffic = traffic_[static_cast<std::size_t>(host)];
  traffic.messages_received += model_.ranks_per_nic;
  traffic.bytes_received += model_.ranks_per_nic * message.bytes;
}

void SimulatedNetwork::on_arrived(std::uint32_t number) {
  const Message& message = *messages_[number];
  const int to = message.to;
  ranks_[static_cast<std::size_t>(to)].messenger->arrived(number, message);
  ask_for_turn(to, now_);
}

void SimulatedNetwork::give_back(std::uint32_t number) { free_.push_back(number); }

}  // namespace kolo::internal::simulation
