// SPDX-License-Identifier: Apache-2.0
// The hosts of a job: their agents, and the processes that the agents are to start.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/server/cooldown.hpp"
#include "rendezvous/server/process_table.hpp"

namespace kolo::internal::rendezvous {

/// How long the server waits for hosts before it says which have come.
inline constexpr std::chrono::seconds patience_for_hosts{5};

struct Agent {
  Hello hello{};
  Time heard{};                    // when its last message came
  std::vector<ProcessId> slots{};  // 0: free
  bool removing = false;           // its host leaves the job

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

  /// Why an agent with this hello cannot take part; none if it can.
  [[nodiscard]] std::optional<Refusal> find_refusal(const Hello& hello) const;
  /// The earlier connection of an agent that comes again.
  [[nodiscard]] std::optional<Link> find_earlier(const Hello& hello) const;
  void add(Link link, const Hello& hello, Time now);
  /// Null if there is none on this link.
  [[nodiscard]] Agent* find(Link link);
  /// Removes the agent, and returns it.
  [[nodiscard]] std::optional<Agent> take(Link link);
  [[nodiscard]] const std::map<Link, Agent>& agents() const { return agents_; }
  /// Agents whose lease has ended.
  [[nodiscard]] std::vector<Link> silent(Time now) const;

  /// The links of the agents of a host.
  [[nodiscard]] std::vector<Link> find_host(const std::string& name) const;
  [[nodiscard]] bool is_any_removed() const;
  /// The process runs on a host that leaves the job.
  [[nodiscard]] bool is_removed(const Process& process) const;
  /// Agents of hosts that leave the job, without processes.
  [[nodiscard]] std::vector<Link> idle_removed() const;

  /// A process has failed on this agent's host, which rests for a while.
  void cool_down(const Agent& agent, Time now) { cooldown_.fail(agent.hello.host, now); }
  /// Has agents start the processes that are missing.
  void start_processes(Time now);
  /// When the first processes were started.
  [[nodiscard]] Time started_at() const { return started_at_; }
  /// How many processes were started first; `max_ranks` before that.
  [[nodiscard]] int started_size() const { return started_size_; }
  /// `now`: the time of the last event.
  [[nodiscard]] std::optional<Time> next_time(Time now) const;

 private:
  [[nodiscard]] bool takes_part(const Hello& hello) const;
  [[nodiscard]] std::vector<Link> staying_in_order() const;
  void start_first(Time now);
  void start_more(Time now);
  void note_waiting(Time now);
  void launch(Link link, Start& start, std::int32_t rank, std::int32_t size);

  const ServerOptions& options_;
  ProcessTable& processes_;
  Actions& actions_;
  std::map<Link, Agent> agents_{};
  Cooldown cooldown_;
  std::map<std::string, int> machines_{};  // how many agents each had when the job began
  bool started_ = false;
  Time started_at_{};
  int started_size_ = max_ranks;
  bool noted_waiting_ = false;
};

}  // namespace kolo::internal::rendezvous
