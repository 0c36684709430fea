// SPDX-License-Identifier: Apache-2.0
// A network between hosts in virtual time. One thread drives the ranks of all hosts, so the same
// program gives the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <vector>

#include "messenger/messenger.hpp"
#include "program.hpp"

namespace kolo::internal::simulation {

/// The LogGP cost model of messages. A NIC sends one message after another, and at the same time
/// receives one after another. A message passes the sender's NIC, the wire and the receiver's NIC;
/// the last two overlap with the first.
struct NetworkModel {
  Time latency{2000};        // from NIC to NIC
  Time overhead{300};        // a rank's time per message that it sends or receives
  Time gap{20};              // a NIC's time per message
  double bytes_per_ns = 25;  // rate of a NIC in each direction
  int ranks_per_nic = 1;     // each simulated rank stands for this many ranks in lockstep
  Time within_host{200};     // until a rank sees the writes of another rank of its host
  double bytes_per_ns_within_host = 10;  // rate of messages within a host
};

/// The traffic of a NIC.
struct NicTraffic {
  std::int64_t messages_sent = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t messages_received = 0;
  std::int64_t bytes_received = 0;
};

/// Messages are never dropped, and ranks never fail.
class SimulatedNetwork {
 public:
  /// `host_of`: the host of each rank. Ranks of one host share a NIC.
  SimulatedNetwork(const NetworkModel& model, std::vector<int> host_of);
  ~SimulatedNetwork();
  SimulatedNetwork(const SimulatedNetwork&) = delete;
  SimulatedNetwork& operator=(const SimulatedNetwork&) = delete;

  [[nodiscard]] messenger::Messenger& messenger(int rank);
  [[nodiscard]] int size() const { return static_cast<int>(host_of_.size()); }
  [[nodiscard]] const std::vector<NicTraffic>& traffic() const { return traffic_; }

  /// Gives all ranks turns until nothing more can happen. In a turn, `step(rank)` is called until
  /// it returns false, which means that the rank waits. Returns the virtual time from the first
  /// turn to the last event.
  Time run(const std::function<bool(int)>& step);

 private:
  class RankMessenger;
  class RankChannel;
  struct Message;
  struct Event {
    enum class Kind : std::uint8_t { turn, sent, head, arrived };
    Time at;
    std::uint64_t order;
    Kind kind;
    std::uint32_t what;  // rank or message
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Rank {
    Time clock{};  // time until which the rank's processor is busy
    Time turn_at = Time::max();
    std::unique_ptr<RankMessenger> messenger{};
  };
  struct Nic {
    Time sends_until{};
    Time receives_until{};
  };

  void push(Time at, Event::Kind kind, std::uint32_t what);
  void ask_for_turn(int rank, Time at);
  void take_turn(int rank, const std::function<bool(int)>& step);
  void post(int from, int to, messenger::Tag tag, const std::byte* data, std::int64_t bytes,
            RankChannel& channel, messenger::Token token);
  void on_sent(Message& message);
  void on_head(std::uint32_t number);
  void on_arrived(std::uint32_t number);
  void give_back(std::uint32_t number);
  [[nodiscard]] Time time_in_nic(std::int64_t bytes) const;

  NetworkModel model_;
  std::vector<int> host_of_;
  std::vector<std::vector<int>> ranks_of_{};  // ranks by host
  std::vector<Rank> ranks_;
  std::vector<Nic> nics_;
  std::vector<NicTraffic> traffic_;
  std::vector<std::unique_ptr<Message>> messages_{};
  std::vector<std::uint32_t> free_{};
  std::priority_queue<Event> events_{};
  std::uint64_t next_order_ = 0;
  Time now_{};
};

}  // namespace kolo::internal::simulation
