// A network inside one process for tests: deterministic from a seed, single-threaded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/transport.hpp"

namespace kolo::internal::transport {

/// Messages of an ordered pair of ranks keep their order; which pair is served next is random.
class InProcessNetwork {
 public:
  InProcessNetwork(int ranks, std::uint64_t seed);
  ~InProcessNetwork();

  [[nodiscard]] Transport& endpoint(int rank);

  /// Moves one message, of a random pair that has one, to its receiver's inbox. False if there is
  /// none.
  bool deliver_one();

  /// True if no message is under way or in an inbox.
  [[nodiscard]] bool quiet() const;

 private:
  class Endpoint;
  struct Edge {
    int from;
    int to;
    std::deque<Message> messages;
  };

  void send(int from, int to, Message message);

  std::mt19937_64 random_;
  std::unordered_map<std::uint64_t, Edge> edges_;
  std::vector<Edge*> busy_;  // edges with messages
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

class InProcessNetwork::Endpoint : public Transport {
 public:
  Endpoint(InProcessNetwork& network, int rank) : network_(network), rank_(rank) {}

  void send(int peer, Message message) override { network_.send(rank_, peer, std::move(message)); }

  bool poll(const Receiver& receive) override {
    const bool moved = !inbox_.empty();
    for (; !inbox_.empty(); inbox_.pop_front())
      receive(inbox_.front().first, inbox_.front().second);
    return moved;
  }

  [[nodiscard]] bool flushed() const override { return true; }

  void put(int from, Message message) { inbox_.emplace_back(from, std::move(message)); }
  [[nodiscard]] bool empty() const { return inbox_.empty(); }

 private:
  InProcessNetwork& network_;
  int rank_;
  std::deque<std::pair<int, Message>> inbox_;
};

inline InProcessNetwork::InProcessNetwork(int ranks, std::uint64_t seed) : random_(seed) {
  for (int rank = 0; rank < ranks; ++rank)
    endpoints_.push_back(std::make_unique<Endpoint>(*this, rank));
}

inline InProcessNetwork::~InProcessNetwork() = default;

inline Transport& InProcessNetwork::endpoint(int rank) {
  return *endpoints_.at(static_cast<std::size_t>(rank));
}

inline void InProcessNetwork::send(int from, int to, Message message) {
  const std::uint64_t pair =
      (static_cast<std::uint64_t>(from) << 32) | static_cast<std::uint32_t>(to);
  Edge& edge = edges_.try_emplace(pair, Edge{from, to, {}}).first->second;
  if (edge.messages.empty()) busy_.push_back(&edge);
  edge.messages.push_back(std::move(message));
}

inline bool InProcessNetwork::deliver_one() {
  if (busy_.empty()) return false;
  const std::size_t chosen =
      std::uniform_int_distribution<std::size_t>(0, busy_.size() - 1)(random_);
  Edge& edge = *busy_[chosen];
  endpoints_[static_cast<std::size_t>(edge.to)]->put(edge.from, std::move(edge.messages.front()));
  edge.messages.pop_front();
  if (edge.messages.empty()) {
    std::swap(busy_[chosen], busy_.back());
    busy_.pop_back();
  }
  return true;
}

inline bool InProcessNetwork::quiet() const {
  return busy_.empty() &&
         std::ranges::all_of(endpoints_, [](const auto& endpoint) { return endpoint->empty(); });
}

}  // namespace kolo::internal::transport
