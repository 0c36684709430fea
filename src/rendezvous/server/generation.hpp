// SPDX-License-Identifier: Apache-2.0
// The current generation of a job: its members, their collective calls, and its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/server/collective_calls.hpp"
#include "rendezvous/server/hosts.hpp"
#include "rendezvous/server/process_table.hpp"

namespace kolo::internal::rendezvous {

class Generation {
 public:
  /// The processes of the next generation.
  struct Candidates {
    std::vector<Process*> survivors;  // by rank
    std::vector<Process*> newcomers;  // by their wanted rank, then by number
  };

  /// The arguments outlive this object.
  Generation(const ServerOptions& options, ProcessTable& processes, const Hosts& hosts,
             Actions& actions)
      : options_(options), processes_(processes), hosts_(hosts), actions_(actions) {}

  /// 0 before the first generation.
  [[nodiscard]] GenerationNumber number() const { return number_; }
  [[nodiscard]] bool is_running() const { return phase_ == Phase::running; }
  [[nodiscard]] bool is_broken() const { return phase_ == Phase::broken; }
  [[nodiscard]] bool has_calls() const { return !calls_.empty(); }
  /// A member is lost.
  [[nodiscard]] bool has_lost() const { return has_lost_; }
  /// How many generations were broken by a loss.
  [[nodiscard]] int losses() const { return losses_; }
  /// Null if there is no such rank, or its process was forgotten.
  [[nodiscard]] Process* member(std::int32_t rank);

  /// A member's part of a call. Returns how the part breaks the protocol; none if it does not.
  [[nodiscard]] std::optional<std::string> contribute(Process& process, const Contribution& part,
                                                      Time now);
  /// The generation's session has started.
  void note_begun() { begun_ = true; }
  void note_lost() { has_lost_ = true; }
  /// Ends the generation in disorder. `ranks` are lost.
  void break_up(const std::string& reason, const std::vector<std::int32_t>& ranks, Time now);
  /// The job is over.
  void stop();

  /// The members leave the generation, in order or because it broke.
  void begin_meeting(Time now);
  void end_meeting() { meeting_since_.reset(); }
  [[nodiscard]] bool is_meeting() const { return meeting_since_.has_value(); }
  [[nodiscard]] bool is_meeting_overdue(Time now) const;
  /// All members, or before the first generation all processes, wait for the next generation or
  /// have gone.
  [[nodiscard]] bool all_have_come() const;
  /// Members that are missing in a call, or in the meeting, and whose time is over.
  [[nodiscard]] std::vector<Process*> late_in_calls(Time now);
  [[nodiscard]] std::vector<Process*> late_in_meeting(Time now);

  [[nodiscard]] Candidates candidates(bool admits_newcomers);
  /// Without the processes of hosts that leave, enough processes remain, one of them a member.
  [[nodiscard]] bool can_do_without_removed() const;
  /// Begins the next generation. Returns true if a member has left because it was completed.
  bool publish(const Candidates& candidates);

  /// When rank 0 learns that membership is to change; none if nothing is to change, or it knows.
  /// `now`: the time of the last event.
  [[nodiscard]] std::optional<Time> announcement_time(Time now) const;
  void announce();
  /// The last announcement may no longer be up to date.
  void forget_announcement() { announced_ = false; }
  /// The next event of the calls and the meeting.
  [[nodiscard]] std::optional<Time> next_time() const;

 private:
  enum class Phase : std::uint8_t { none, running, broken };

  [[nodiscard]] Time call_timeout() const;
  void deliver(std::uint64_t sequence);
  void send_to_members(Message message, const std::function<bool(const Process&)>& is_to);
  [[nodiscard]] bool only_refuses_newcomers(const std::vector<std::int32_t>& ranks) const;
  [[nodiscard]] bool only_misses_departed() const;
  [[nodiscard]] bool release_completed();
  [[nodiscard]] std::vector<Process*> order_members(const Candidates& candidates) const;

  const ServerOptions& options_;
  ProcessTable& processes_;
  const Hosts& hosts_;
  Actions& actions_;
  GenerationNumber number_ = 0;
  Phase phase_ = Phase::none;
  std::vector<ProcessId> roster_{};  // by rank
  CollectiveCalls calls_{};
  std::optional<Time> meeting_since_{};
  bool announced_ = false;  // to rank 0
  bool begun_ = false;      // its session has started
  bool has_lost_ = false;
  int losses_ = 0;
};

}  // namespace kolo::internal::rendezvous
