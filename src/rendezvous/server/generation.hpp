// SPDX-License-Identifier: Apache-2.0
// The current generation of a job: its members, their collective calls, and its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/server/hosts.hpp"
#include "rendezvous/server/process_table.hpp"

namespace kolo::internal::rendezvous {

/// The collective calls by which the ranks of a generation start their session. Gathers the parts
/// of calls that not all ranks have made yet.
class CollectiveCalls {
 public:
  struct Call {
    Time since;                                 // when its first part arrived
    std::vector<std::optional<Payload>> parts;  // by rank
    std::size_t count = 0;
    std::size_t bytes = 0;
  };

  /// Forgets all calls. Each later call has one part from each of `ranks` ranks.
  void begin(std::size_t ranks) {
    calls_.clear();
    ranks_ = ranks;
  }
  void clear() { calls_.clear(); }
  [[nodiscard]] bool empty() const { return calls_.empty(); }

  /// Adds a rank's part. Returns the call.
  const Call& add(std::int32_t rank, const Contribution& part, Time now) {
    Call& call = calls_.try_emplace(part.sequence, Call{.since = now, .parts{ranks_, std::nullopt}})
                     .first->second;
    call.parts[static_cast<std::size_t>(rank)] = Payload{part.payload};
    ++call.count;
    call.bytes += part.payload.size();
    return call;
  }
  /// Removes a complete call and returns its parts by rank.
  [[nodiscard]] std::vector<Payload> take(std::uint64_t sequence) {
    Call call = std::move(calls_.extract(sequence).mapped());
    std::vector<Payload> payloads;
    for (std::optional<Payload>& part : call.parts) payloads.push_back(std::move(*part));
    return payloads;
  }
  /// The call that began first; null without calls. Each rank makes its calls in order, so this is
  /// the call with the lowest number.
  [[nodiscard]] const Call* oldest() const {
    return calls_.empty() ? nullptr : &calls_.begin()->second;
  }

 private:
  std::size_t ranks_ = 0;
  std::map<std::uint64_t, Call> calls_{};  // by sequence number
};

/// A generation runs from `publish` until it breaks or its members meet for the next one. During a
/// meeting, members leave the generation and wait for the next one.
class Generation {
 public:
  /// The processes that may be in the next generation.
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
  /// True if a member of this generation is lost.
  [[nodiscard]] bool has_lost() const { return has_lost_; }
  /// The number of generations that were broken by a loss.
  [[nodiscard]] int losses() const { return losses_; }
  /// The number of its ranks.
  [[nodiscard]] std::size_t size() const { return roster_.size(); }
  /// Null if there is no such rank, or its process was forgotten.
  [[nodiscard]] Process* member(std::int32_t rank);

  /// Adds a member's part of a call. Returns a description of the breach if the part breaks the
  /// protocol, otherwise none.
  [[nodiscard]] std::optional<std::string> contribute(Process& process, const Contribution& part,
                                                      Time now);
  /// Continues a generation that another server has published. All its members are in the table.
  void adopt(GenerationNumber number, const std::vector<ProcessId>& members);
  /// The session of the generation has started.
  void note_begun() { begun_ = true; }
  void note_lost() { has_lost_ = true; }
  /// Ends the generation without agreement of its members. `ranks` are the lost ranks.
  void break_up(const std::string& reason, const std::vector<std::int32_t>& ranks, Time now);
  /// The job is over.
  void stop();

  /// A member has left the generation, by agreement or because it broke. Starts the meeting unless
  /// it has started.
  void begin_meeting(Time now);
  void end_meeting() { meeting_since_.reset(); }
  [[nodiscard]] bool is_meeting() const { return meeting_since_.has_value(); }
  [[nodiscard]] bool is_meeting_overdue(Time now) const;
  /// True if all members wait for the next generation, are completed, or have gone. Before the
  /// first generation, this applies to all processes.
  [[nodiscard]] bool all_have_come() const;
  /// The members that are missing in a call, or in the meeting, after the timeout.
  [[nodiscard]] std::vector<Process*> late_in_calls(Time now);
  [[nodiscard]] std::vector<Process*> late_in_meeting(Time now);

  [[nodiscard]] Candidates candidates(bool admits_newcomers);
  /// True if enough processes remain without those on hosts that leave the job. After the first
  /// generation has begun, one of them must be a member, since only members have the job's state.
  [[nodiscard]] bool can_do_without_removed() const;
  /// Begins the next generation. Returns true if completed members have left the job.
  bool publish(const Candidates& candidates);

  /// The time at which rank 0 is to learn that membership will change; none if it will not change,
  /// or if rank 0 knows already. `now`: the time of the last event.
  [[nodiscard]] std::optional<Time> announcement_time(Time now) const;
  void announce();
  /// Allows another announcement, because the last one may be out of date.
  void forget_announcement() { announced_ = false; }
  /// The next timeout of a call or the meeting.
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
  bool announced_ = false;  // rank 0 knows that membership will change
  bool begun_ = false;      // the session has started
  bool has_lost_ = false;
  int losses_ = 0;
};

}  // namespace kolo::internal::rendezvous
