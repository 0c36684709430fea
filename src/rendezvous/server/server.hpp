// SPDX-License-Identifier: Apache-2.0
// Decides which processes take part in a job. A state machine without a clock, threads or sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/server/connections.hpp"
#include "rendezvous/server/generation.hpp"
#include "rendezvous/server/hosts.hpp"
#include "rendezvous/server/inheritance.hpp"
#include "rendezvous/server/job_outcome.hpp"
#include "rendezvous/server/process_table.hpp"
#include "rendezvous/server/server_interface.hpp"
#include "rendezvous/server/stall_judge.hpp"
#include "rendezvous/server/take_over.hpp"
#include "rendezvous/server/waits.hpp"

namespace kolo::internal::rendezvous {

/// The membership of a job is a sequence of generations, and each generation is one session. The
/// server also carries the collective calls by which a session starts. The times that callers pass
/// never decrease. Not thread-safe.
class Server {
 public:
  /// `random` draws the nonces.
  Server(const ServerOptions& options, std::function<std::uint64_t()> random);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// The connection that the next `on_open` would close, because too many have not identified
  /// themselves; none if it would close none. Before calling `on_open`, pass on the messages that
  /// have arrived on this connection, since they may identify it.
  [[nodiscard]] std::optional<Link> next_evicted() const { return connections_.next_evicted(); }
  /// `from`: the address of the other side, for messages.
  void on_open(Link link, const std::string& from, Time now) { connections_.open(link, from, now); }
  /// The connection that was opened last belongs to another user of the server's host.
  void on_other_user(Link link, Time now) { connections_.refuse_user(link, now); }
  void on_message(Link link, const Message& message, Time now);
  /// The other side has closed the connection, or the connection has failed or carried an invalid
  /// message.
  void on_close(Link link, const std::string& reason, Time now);
  /// kolorun has received this signal. The agents forward it to their processes. SIGINT and SIGHUP
  /// also end the job. After SIGTERM it ends as its processes do, which may leave in good order and
  /// are not replaced; a second one ends it.
  void on_signal(int number, Time now);
  /// Hosts with this name leave at the next commit, as if their agents had announced it.
  void remove_host(const std::string& host, const std::string& reason, Time now);
  /// Hosts with this name stay after all, unless they have already left.
  void keep_host(const std::string& host, Time now);
  /// Ends the job because this host is lost, whose ranks the reason then names.
  void end_by_host(const std::string& host, int status, const std::string& reason, Time now);
  /// The operations in which the other ranks waited when the first one failed; "" if not known.
  [[nodiscard]] std::string waits() const { return waits_.in_words(generation_.size()); }
  /// This process was suspended, and its clock stood still: a standby may have taken over.
  void on_suspension() { hosts_.doubt(); }
  /// Ends the job because it cannot succeed.
  void end(int status, const std::string& reason, Time now);
  /// Handles all timeouts that are due. None is due before `next_time`.
  void on_time(Time now);
  [[nodiscard]] std::optional<Time> next_time() const;

  /// Returns the actions that the caller must carry out, in order.
  [[nodiscard]] std::vector<Action> take() { return actions_.take(); }

  [[nodiscard]] bool finished() const { return outcome_.is_finished(); }
  [[nodiscard]] GenerationNumber generation() const { return generation_.number(); }

 private:
  /// Tells whether a loss starts a cooldown of the process's host.
  enum class Fault : std::uint8_t { none, own };

  // server.cpp: connections, agents and messages
  void greet(Link link, const Hello& hello, Time now);
  void stand_by(Link link, const Peer& peer, const Message& message, Time now);
  void stop_if_superseded(Time now, Time patience);
  void stop_as_superseded(const std::string& reason);
  [[nodiscard]] std::optional<Refusal> find_refusal(const Hello& hello) const;
  void handle_agent(Link link, Agent& agent, const Message& message, Time now);
  void on_exit(Link link, Agent& agent, const Exited& exited, Time now);
  void judge_exit(Process& process, Time now);
  void remove_agent(Agent& agent, const std::string& reason);
  void begin_stopping(int number);
  [[nodiscard]] std::string ranks_of(const Agent& agent) const;
  void lose_agent(Link link, const std::string& reason, Time now);
  void handle(Process& process, const Message& message, Time now);
  void on(Process& process, const Join& join, Time now);
  void on(Process& process, const Contribution& part, Time now);
  void on(Process& process, const Completed& completed, Time now);
  void on(Process& process, const SessionFailed& failed);
  void on(Process& process, const RanksMissed& missed);
  void on(Process& process, const Leave& leave, Time now);
  void on(Process& process, const FailureReport& report, Time now);

  // server_membership.cpp: losses, and the next generation
  void lose(Process& process, const std::string& reason, Fault fault, Time now);
  void settle(Time now);
  void take_over_if_due(Time now);
  void inherit(const Inheritance& all, Time now);
  void end_late(Time now);
  void meet(Time now);
  void judge_stall(Time now);
  [[nodiscard]] bool first_generation_is_due(Time now);
  [[nodiscard]] Time start_deadline() const { return hosts_.started_at() + options_.start_timeout; }
  [[nodiscard]] bool state_is_lost(const std::vector<Process*>& survivors) const;
  [[nodiscard]] Generation::Candidates candidates();
  void dismiss_removed(Generation::Candidates& candidates, Time now);
  [[nodiscard]] bool has_enough(std::size_t candidates);
  [[nodiscard]] std::optional<Time> announcement_time() const;
  void conclude();
  void finish(Finish finish);
  void finish_if_ended_by(Process& process, Time now);
  [[nodiscard]] bool misses_running(const Process& process) const;
  [[nodiscard]] bool awaits_silent_host() const;
  void finish_without_cause();
  void end_crash_loop(const Process& process);
  [[nodiscard]] bool restarts_after(int status) const;

  ServerOptions options_;
  Actions actions_{};
  Connections connections_;
  ProcessTable processes_{options_};
  Hosts hosts_{options_, processes_, actions_};
  Generation generation_{options_, processes_, hosts_, actions_};
  std::optional<TakeOver> take_over_{};  // as long as this server stands by
  StallJudge stalls_{};
  JobOutcome outcome_{options_};
  /// The end of the job, which waits until the process that has failed before has ended too.
  std::optional<Finish> end_after_cause_{};
  Time cause_since_{};                // when it was decided
  std::vector<ProcessId> awaited_{};  // the processes that the job's first victim misses
  Waits waits_{};
  int stopping_ = 0;  // SIGTERM once it has come
  bool is_ended_by_signal_ = false;
  bool has_started_late_ = false;  // too few processes have come in time
  bool is_superseded_ = false;     // the standby may have taken over
  std::set<int> passed_signals_{};
  std::vector<int> held_signals_{};  // those that have come before this standby has the processes
  Time last_time_{};
};

}  // namespace kolo::internal::rendezvous
