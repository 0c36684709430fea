// SPDX-License-Identifier: Apache-2.0
// The hosts of a job: their agents, and the processes that the agents are to start.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/server/cooldown.hpp"
#include "rendezvous/server/process_table.hpp"
#include "rendezvous/server/take_over.hpp"

namespace kolo::internal::rendezvous {

/// The time for which the server waits for hosts before it logs the hosts that have connected.
inline constexpr std::chrono::seconds patience_for_hosts{5};
/// The time for which a job whose other hosts are there waits for the host of its standby.
inline constexpr std::chrono::seconds patience_for_standby{30};
/// So many processes per slot of a host that end before they reach a session are no accident.
inline constexpr int failed_starts_per_slot = 5;

struct Agent {
  Hello hello{};
  Time heard{};                    // when its last message arrived
  std::uint64_t answered = 0;      // the last question of the server, see `Hosts::doubt`
  std::vector<ProcessId> slots{};  // the process in each slot; 0: free
  bool removing = false;           // the host leaves the job

  [[nodiscard]] bool is_idle() const;
};

class Hosts {
 public:
  /// The arguments outlive this object.
  Hosts(const ServerOptions& options, ProcessTable& processes, Actions& actions)
      : options_(options),
        processes_(processes),
        actions_(actions),
        cooldown_(options.min_cooldown, options.max_cooldown) {}

  /// The refusal of an agent with this hello; none if the agent can take part.
  [[nodiscard]] std::optional<Refusal> find_refusal(const Hello& hello) const;
  /// The earlier connection of an agent that reconnects; none for a new agent.
  [[nodiscard]] std::optional<Link> find_earlier(const Hello& hello) const;
  void add(Link link, const Hello& hello, Time now);
  /// Null if no agent is connected on this link.
  [[nodiscard]] Agent* find(Link link);
  /// Removes the agent and returns it.
  [[nodiscard]] std::optional<Agent> take(Link link);
  [[nodiscard]] const std::map<Link, Agent>& agents() const { return agents_; }
  /// The agents whose lease has ended.
  [[nodiscard]] std::vector<Link> silent(Time now) const;

  /// The links of the agents of a host.
  [[nodiscard]] std::vector<Link> find_host(const std::string& name) const;
  [[nodiscard]] bool is_any_removed() const;
  /// True if the process runs on a host that leaves the job.
  [[nodiscard]] bool is_removed(const Process& process) const;
  /// The agents without processes on hosts that leave the job.
  [[nodiscard]] std::vector<Link> idle_removed() const;

  /// The agents that may let the standby take over; none if the job has no standby.
  [[nodiscard]] const std::optional<Electorate>& electorate() const { return electorate_; }
  /// The agent leaves the job and says so, so it never votes for the standby.
  void note_renounced(const Agent& agent) { renounced_.insert(agent.hello.process); }
  /// True if the voters that were heard within `patience` are a quorum.
  [[nodiscard]] bool has_quorum(Time now, Time patience) const;
  /// True if the standby cannot have taken over: a quorum was heard within half of the lease, since
  /// an agent votes for the standby only after so much silence, or once its connection is closed.
  [[nodiscard]] bool surely_rules(Time now) const;
  /// This process was suspended. Messages that it reads now may have come before their agents voted
  /// for the standby, so it believes only answers to a new question.
  void doubt();
  /// Continues the job of a lost server with one of its agents. `slots`: its processes.
  void adopt(Link link, const Hello& hello, std::vector<ProcessId> slots, Time now);

  /// Starts the cooldown of the agent's host, because a process has failed there.
  void cool_down(const Agent& agent, Time now) { cooldown_.fail(agent.hello.host, now); }
  /// A process of this host has ended before it reached a session.
  void note_failed_start(const std::string& host) { ++failed_starts_[host]; }
  /// A new session has begun.
  void forget_failed_starts() { failed_starts_.clear(); }
  /// The number of processes that have ended before a session since the last one began.
  [[nodiscard]] int failed_starts() const;
  /// True if no host is likely to have another process reach a session: so many have ended before
  /// on it that this is no accident, or all of its processes wait already.
  [[nodiscard]] bool only_fail() const;
  /// Tells the caller which agents are connected and how many slots the job lacks, if that is not
  /// what it was told last. `grows`: the job starts processes where there are slots.
  void tell_agents(bool grows, Time now);
  /// True if agents have come or gone since the last `tell_agents`, or may have other slots.
  [[nodiscard]] bool has_changed() const { return changed_; }
  void mark_changed() { changed_ = true; }
  /// Makes agents start missing processes.
  void start_processes(Time now);
  /// The time at which the first processes were started.
  [[nodiscard]] Time started_at() const { return started_at_; }
  /// The number of processes in the first start; `max_ranks` before it.
  [[nodiscard]] int started_size() const { return started_size_; }
  /// The next time at which something is due. `now`: the time of the last event.
  [[nodiscard]] std::optional<Time> next_time(Time now) const;

 private:
  [[nodiscard]] bool takes_part(const Hello& hello) const;
  [[nodiscard]] std::vector<Link> staying_in_order() const;
  [[nodiscard]] int missing_slots(Time now) const;
  void start_first(Time now);
  void start_more(Time now);
  void note_waiting(Time now);
  [[nodiscard]] bool awaits_standby(const std::vector<Link>& links, Time now) const;
  [[nodiscard]] bool may_yet_fail(Link link) const;
  [[nodiscard]] bool is_quorum_of(const std::function<bool(const Agent&)>& is_near) const;
  void launch(Link link, Start& start, std::int32_t rank, std::int32_t size);
  void elect();

  const ServerOptions& options_;
  ProcessTable& processes_;
  Actions& actions_;
  std::map<Link, Agent> agents_{};
  Cooldown cooldown_;
  std::map<std::string, int> failed_starts_{};  // by host, since the last session began
  std::map<std::string, int> machines_{};  // number of agents on each machine when the job began
  bool started_ = false;
  Time started_at_{};
  int started_size_ = max_ranks;
  bool noted_waiting_ = false;
  bool changed_ = false;
  AgentsChanged told_{.missing_slots = options_.max_np};
  std::optional<Electorate> electorate_{};
  std::set<ProcessId> renounced_{};  // voters that have left the job
  std::uint64_t questions_ = 0;      // see `doubt`
};

}  // namespace kolo::internal::rendezvous
