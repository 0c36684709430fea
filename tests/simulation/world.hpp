// SPDX-License-Identifier: Apache-2.0
// Many ranks with the real state machines, in one thread and with a virtual clock: the same program
// and seed give the same run.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/session_clock.hpp"
#include "event_queue.hpp"
#include "judge.hpp"
#include "ledger.hpp"
#include "negotiation/protocol/negotiator.hpp"
#include "program.hpp"
#include "support/random.hpp"
#include "traffic.hpp"

namespace kolo::internal::simulation {

/// A rank's driver takes turns like the session's driver: submissions, then messages, then sending
/// and executing. Shared memory, the network and data only cost time.
class World {
 public:
  explicit World(const Program& program);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Runs until no event is left. Throws Violation.
  void run();

  /// The phases between calls of `meet`: from the start to the first, between any two, and from the
  /// last to the end.
  [[nodiscard]] const std::vector<Phase>& phases() const { return phases_; }
  [[nodiscard]] const Judge& judge() const { return judge_; }
  [[nodiscard]] std::uint64_t plans() const { return ranks_.front()->negotiator->plans(); }
  [[nodiscard]] std::uint64_t replayed() const { return ranks_.front()->negotiator->replayed(); }
  [[nodiscard]] Time now() const { return now_; }

 private:
  class Board;
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  struct Message {
    int from;
    int hops;
    Bytes bytes;
  };
  struct Running {  // a batch on one rank
    std::uint64_t sequence;
    SetId set;
    std::vector<Ticket> tickets;
  };
  struct Start {  // a batch on all ranks
    int missing;
    RankSet ranks;
  };
  struct Rank {
    std::unique_ptr<Board> board;
    std::optional<negotiation::Negotiator> negotiator;
    negotiation::TreePosition place;
    std::size_t next = 0;  // act
    bool blocked = false;  // until an operation is answered
    bool joined = false;
    bool wants_to_leave = false;
    bool has_left = false;
    bool dead = false;
    bool failed = false;  // another rank was lost
    bool turn_due = false;
    bool time_due = false;
    int unanswered = 0;  // or answered and not executed yet
    Time timer = Time::max();
    Time busy_until{};
    Time paused_until{};
    Time computes_longer{};  // for pauses since the last act
    std::optional<SessionClock> clock{};
    Time last_up{};    // arrival at the parent of the last message sent to it
    Time last_down{};  // arrival here of the parent's last message
    int hops = 0;
    std::int64_t copies_owed = 0;  // copies of the parent's messages still to be sent to children
    std::vector<Ticket> submitted;
    std::vector<std::uint8_t> key_taken;  // by key: not answered, or not executed yet
    std::vector<SetId> sets;              // by number in the program; 0: not known
    std::vector<std::uint64_t> unnamed;   // by number of the set
    std::vector<Message> inbox;
    std::deque<Running> running;
  };

  [[nodiscard]] Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool over(const Rank& rank) const {
    return rank.dead || rank.failed || rank.negotiator->ended();
  }
  [[nodiscard]] bool all_over() const;
  void handle(const Event& event);
  [[nodiscard]] bool put_off(const Event& event);

  // The rank's program.
  void act(int rank);
  bool submit(int rank, const Act& act);
  [[nodiscard]] std::optional<Key> key_of(Rank& rank, int operation) const;
  void unblock(int rank);
  void meet();
  void pause(const Pause& pause);
  void die(int rank);
  void lose(int rank);

  // The rank's driver.
  void ask_for_turn(int rank);
  void turn(int rank);
  int read_messages(int rank);
  int perform(int rank, negotiation::Actions& actions, Time& clock);
  void send(int rank, negotiation::Send& send, Time departure, Bytes& last);
  void start(int rank, const negotiation::Execute& execute);
  void finish(int rank, std::uint64_t sequence);
  void settled(int rank, Ticket ticket);
  void wake(const Rank& publisher, bool everybody);
  void check_copies(int rank) const;

  [[nodiscard]] Time random_up_to(Time most);
  [[nodiscard]] negotiation::TimePoint clock() const { return negotiation::TimePoint(now_); }
  /// The time without that in which all ranks were stopped.
  [[nodiscard]] Time awake() const { return now_ - suspended_; }
  [[nodiscard]] bool lacks_a_rank(SetId set) const;

  const Program& program_;
  const Settings& settings_;
  const internal::Settings negotiator_settings_;
  std::vector<Operation> operations_;        // with what became known during the run
  std::vector<KeyNumber> key_of_operation_;  // of those whose key is fixed; -1
  campaign::Random random_;
  EventQueue queue_;
  Ledger ledger_;
  Judge judge_;
  std::map<SetId, RankSet> members_;  // as reported to the ranks
  std::vector<std::uint64_t> words_;  // words of the board
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Message> messages_;  // in flight
  std::vector<std::size_t> free_messages_;
  std::vector<Ticket> turn_tickets_;    // submissions of the rank in its turn
  std::vector<Message> turn_messages_;  // messages of the rank in its turn
  std::unordered_map<std::uint64_t, Start> starts_;
  std::vector<Phase> phases_;
  int meeting_ = 0;
  bool any_dead_ = false;
  bool looks_often_;  // drivers look after what depends on the time
  Time now_{};
  Time suspended_{};  // so long all ranks were stopped
  Time suspended_until_{};
  Time progress_{};
};

}  // namespace kolo::internal::simulation
