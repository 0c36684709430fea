#include "transport/in_process_network.hpp"

#include <algorithm>
#include <utility>

namespace kolo::transport {

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

InProcessNetwork::InProcessNetwork(int ranks, std::uint64_t seed) : random_(seed) {
  for (int rank = 0; rank < ranks; ++rank)
    endpoints_.push_back(std::make_unique<Endpoint>(*this, rank));
}

InProcessNetwork::~InProcessNetwork() = default;

Transport& InProcessNetwork::endpoint(int rank) {
  return *endpoints_.at(static_cast<std::size_t>(rank));
}

void InProcessNetwork::send(int from, int to, Message message) {
  const std::uint64_t pair =
      (static_cast<std::uint64_t>(from) << 32) | static_cast<std::uint32_t>(to);
  Edge& edge = edges_.try_emplace(pair, Edge{from, to, {}}).first->second;
  if (edge.messages.empty()) busy_.push_back(&edge);
  edge.messages.push_back(std::move(message));
}

bool InProcessNetwork::deliver_one() {
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

bool InProcessNetwork::quiet() const {
  return busy_.empty() &&
         std::ranges::all_of(endpoints_, [](const auto& endpoint) { return endpoint->empty(); });
}

}  // namespace kolo::transport
