// SPDX-License-Identifier: Apache-2.0
// Many ranks that negotiate over an in-process network, in one thread and from one seed, so that a
// failing seed fails again.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "../support/in_process_network.hpp"
#include "negotiation/protocol/negotiator.hpp"

namespace kolo::internal::test {

/// The outcome of one submission.
struct Outcome {
  Key key;
  Descriptor descriptor{};
  int answers = 0;                       // must become 1
  std::optional<std::uint64_t> batch{};  // the sequence number it was executed under
  std::optional<Failure> failure{};
  std::optional<std::int64_t> answer{};
};

/// A batch as one rank saw it.
struct SeenBatch {
  std::uint64_t sequence;
  RankSet ranks;  // participants
  std::vector<Key> keys;
  std::vector<Descriptor> descriptors;  // as this rank submitted them
  friend bool operator==(const SeenBatch&, const SeenBatch&) = default;
};

class Simulation {
 public:
  struct Options {
    std::vector<int> node_of;
    std::uint64_t seed = 0;
    int arity = 8;
    std::int64_t fusion_threshold = 1 << 20;
    std::int64_t cache_capacity = 64;
    std::chrono::nanoseconds stall_warning{};
    std::chrono::nanoseconds stall_shutdown{};
    // The statuses of the ranks of a host, from the rank that reports for the host; none from the
    // others.
    std::function<std::vector<negotiation::RankStatus>(int rank)> statuses{};
    bool replay = false;      // then all ranks are on one node
    bool clocks_run = false;  // a little time passes now and then, on one rank at a time
  };

  explicit Simulation(const Options& options);

  /// Queues a submission of `rank`; it is made at some later event, in the order of these calls,
  /// and not before an earlier one under the same key was answered.
  void submit(int rank, const Key& key, const Descriptor& descriptor);
  /// Later calls of the rank wait until its earlier calls are answered.
  void wait(int rank);
  /// Queues a join; later calls wait for its answer.
  void join(int rank);
  void add_set(int rank, const RankSet& members);
  void remove_set(int rank, SetId set);
  /// Queues the departure of `rank`, after the calls queued before.
  void leave(int rank, const std::string& reason = "of the test");

  /// Runs events in random order until none is left. If a plan waits for time, time passes as far
  /// as the plan needs.
  void run();
  /// Advances the clock of every rank, then runs.
  void pass_time(std::chrono::nanoseconds time);

  [[nodiscard]] int ranks() const { return static_cast<int>(nodes_.size()); }
  [[nodiscard]] const std::vector<Outcome>& outcomes(int rank) const { return at(rank).outcomes; }
  [[nodiscard]] const std::vector<SeenBatch>& log(int rank) const { return at(rank).log; }
  [[nodiscard]] const std::vector<std::string>& reports(int rank) const { return at(rank).reports; }
  [[nodiscard]] bool ended(int rank) const { return at(rank).negotiator->ended(); }
  /// The number of batches that came from plans.
  [[nodiscard]] std::uint64_t replayed(int rank) const { return at(rank).negotiator->replayed(); }
  /// The number of plans begun.
  [[nodiscard]] std::uint64_t plans() const { return at(0).negotiator->plans(); }
  [[nodiscard]] negotiation::Negotiator& negotiator(int rank) { return *at(rank).negotiator; }
  /// True if all queued calls have happened.
  [[nodiscard]] bool finished() const;
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] std::mt19937_64& random() { return random_; }

 private:
  struct Wish {
    bool waits = false;
    bool leaves = false;
    Key key{};
    Descriptor descriptor{};
    std::string reason{};
  };
  class Board;
  struct Node {
    std::unique_ptr<negotiation::PlanBoard> board;
    std::unique_ptr<negotiation::Negotiator> negotiator;
    std::deque<Wish> wishes;
    std::vector<Outcome> outcomes;  // by ticket
    std::vector<SeenBatch> log;
    std::vector<std::string> reports;
    std::deque<SetId> executing;  // sets of batches in progress
    bool joined = false;
    int unanswered = 0;
    std::map<std::string, int> pending;  // keys without an answer
  };

  [[nodiscard]] const Node& at(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }
  Node& at(int rank) { return nodes_[static_cast<std::size_t>(rank)]; }
  bool make_wish(int rank);
  bool take(int rank);
  bool receive(int rank);
  bool finish_one(int rank);
  bool event();
  bool pass_to_deadline();
  void settle(Outcome& outcome, Node& node);
  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }

  const Settings settings_;
  bool clocks_run_;
  std::function<std::vector<negotiation::RankStatus>(int rank)> statuses_;
  std::vector<std::uint64_t> words_;  // words of the board
  std::vector<Node> nodes_;
  transport::InProcessNetwork network_;
  std::mt19937_64 random_;
  negotiation::TimePoint now_{};
  std::int64_t bytes_sent_ = 0;
};

/// The nodes of ranks, with `per_node` ranks each.
[[nodiscard]] std::vector<int> even_nodes(int ranks, int per_node);

/// A sum of `elements` floats.
[[nodiscard]] Descriptor floats(std::int64_t elements);

/// Checks that every submission has one answer, that any two ranks saw their common batches in the
/// same order and with the same content, and that every participant of a batch saw it.
void expect_consistent(const Simulation& simulation);

}  // namespace kolo::internal::test
