// A network inside one process for tests: deterministic from a seed, single-threaded.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "transport/transport.hpp"

namespace kolo::transport {

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

}  // namespace kolo::transport
