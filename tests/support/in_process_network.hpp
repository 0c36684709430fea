// SPDX-License-Identifier: Apache-2.0
// A network inside one process: deterministic from a seed, single-threaded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "transport/transport.hpp"

namespace kolo::internal::transport {

/// Delivers the messages of each ordered pair of ranks in order, and picks the next pair at random.
class InProcessNetwork {
 public:
  InProcessNetwork(int ranks, std::uint64_t seed) : random_(seed) {
    for (int rank = 0; rank < ranks; ++rank)
      endpoints_.push_back(std::make_unique<Endpoint>(*this, rank));
  }
  InProcessNetwork& operator=(InProcessNetwork&&) = delete;

  [[nodiscard]] Transport& endpoint(int rank) {
    return *endpoints_.at(static_cast<std::size_t>(rank));
  }

  /// Moves one message of a random pair to its receiver's inbox. Returns false if no message is
  /// under way.
  bool deliver_one() {
    if (busy_.empty()) return false;
    const std::size_t chosen =
        std::uniform_int_distribution<std::size_t>(0, busy_.size() - 1)(random_);
    Edge& edge = *busy_[chosen];
    endpoints_[static_cast<std::size_t>(edge.to)]->inbox.emplace_back(
        edge.from, std::move(edge.messages.front()));
    edge.messages.pop_front();
    if (edge.messages.empty()) {
      std::swap(busy_[chosen], busy_.back());
      busy_.pop_back();
    }
    return true;
  }

  /// True if no message is under way or in an inbox.
  [[nodiscard]] bool quiet() const {
    return busy_.empty() && std::ranges::all_of(endpoints_, [](const auto& endpoint) {
             return endpoint->inbox.empty();
           });
  }

 private:
  struct Edge {
    int from;
    int to;
    std::deque<Message> messages;
  };

  struct Endpoint : Transport {
    Endpoint(InProcessNetwork& its_network, int its_rank) : network(its_network), rank(its_rank) {}

    void send(int peer, Message message) override { network.send(rank, peer, std::move(message)); }

    bool poll(const Receiver& receive) override {
      const bool moved = !inbox.empty();
      for (; !inbox.empty(); inbox.pop_front()) receive(inbox.front().first, inbox.front().second);
      return moved;
    }

    [[nodiscard]] bool flushed() const override { return true; }

    InProcessNetwork& network;
    int rank;
    std::deque<std::pair<int, Message>> inbox{};
  };

  void send(int from, int to, Message message) {
    Edge& edge = edges_.try_emplace({from, to}, Edge{from, to, {}}).first->second;
    if (edge.messages.empty()) busy_.push_back(&edge);
    edge.messages.push_back(std::move(message));
  }

  std::mt19937_64 random_;
  std::map<std::pair<int, int>, Edge> edges_{};
  std::vector<Edge*> busy_{};  // edges with messages
  std::vector<std::unique_ptr<Endpoint>> endpoints_{};
};

}  // namespace kolo::internal::transport
