// SPDX-License-Identifier: Apache-2.0
// The processes of a job, from their launch until the server can hear nothing more of them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/process_limits.hpp"
#include "rendezvous/server/server_interface.hpp"

namespace kolo::internal::rendezvous {

/// The exit status of a process that a signal has ended is this base plus the signal's number, as
/// in shells.
inline constexpr int signal_base = 128;
/// The exit status of a process whose program cannot be run.
inline constexpr int cannot_run = 127;
/// Describes an exit status in words.
[[nodiscard]] inline std::string describe_exit(int status) {
  constexpr int max_signal = 64;
  if (status > signal_base && status <= signal_base + max_signal)
    return fmt::format("signal {} has ended it{}", status - signal_base,
                       limit_behind_signal(status - signal_base));
  if (status == 0) return "it has ended without leaving the session";
  return fmt::format("it has ended with status {}", status);
}

enum class Stage : std::uint8_t {
  launched,  // the agent was told to start it
  greeted,   // connected
  waiting,   // waits for the next generation
  member,    // in the current generation
  left,      // has finished its part
  lost,
};

struct Process {
  ProcessId id = 0;
  std::optional<Link> agent{};
  std::optional<Link> link{};
  Stage stage = Stage::launched;   // changed only by ProcessTable::move
  std::int32_t order = max_ranks;  // its intended rank, which orders newcomers
  std::int32_t rank = -1;          // its rank in its latest generation; -1: none
  Hello hello{};
  std::uint64_t commit = 0;
  GenerationNumber age = 0;  // its first generation; 0: none yet
  Time joined{};
  std::uint64_t sequence = 0;  // the number of its next collective call
  bool completed = false;      // the other members no longer need it
  bool exited = false;
  bool ended_unheard = false;       // while the job had no server
  int status = 0;                   // the exit status, once it has exited
  std::string reason{};             // the reason of its loss
  std::string detail{};             // what else its agent knows of its end
  std::string own_failure{};        // why its session has failed, if that was its own doing
  bool is_victim = false;           // other ranks have ended its session
  std::vector<ProcessId> missed{};  // their processes
  std::string last_lines{};         // the end of its standard error, once it has exited
  std::string host{};               // where its agent runs

  [[nodiscard]] bool is_living_member() const {
    return stage == Stage::member || (stage == Stage::waiting && age > 0);
  }
  /// Its rank; before its first session the intended one; -1 if it has none.
  [[nodiscard]] std::int32_t known_rank() const {
    return rank >= 0 ? rank : order < max_ranks ? order : -1;
  }
  /// Describes the process by its rank, process ID and host, for messages.
  [[nodiscard]] std::string name() const {
    const std::int32_t known = known_rank();
    const std::string what = known >= 0 ? fmt::format("rank {}", known) : "a new process";
    // As a launcher's list names the host.
    const std::string& where = host.empty() ? hello.host : host;
    if (where.empty()) return fmt::format("{} (number {})", what, id);
    if (hello.pid == 0) return fmt::format("{} (number {} on {})", what, id, where);
    return fmt::format("{} (process {} on {})", what, hello.pid, where);
  }
  /// Describes the exit, for messages.
  [[nodiscard]] std::string describe_end() const {
    return describe_exit(status) + (detail.empty() ? "" : ": " + detail);
  }
  void lose(const std::string& why) {
    if (own_failure.empty()) {
      reason = fmt::format("{} is lost: {}", name(), why);
    } else {
      reason = fmt::format("{} has failed: {}", name(), own_failure);
      if (exited) reason += "; " + why;
    }
  }
};

/// Names of processes in a message: the first few, and how many more there are.
class Names {
 public:
  void add(const std::string& name) {
    constexpr int shown = 4;
    if (count_++ < shown) text_ += (text_.empty() ? "" : ", ") + name;
    more_ = std::max(0, count_ - shown);
  }
  /// The names after `heading`; "" if there are none.
  [[nodiscard]] std::string after(std::string_view heading) const {
    if (count_ == 0) return "";
    return fmt::format("{}{}{}", heading, text_,
                       more_ == 0 ? "" : fmt::format(" and {} more", more_));
  }

 private:
  std::string text_{};
  int count_ = 0;
  int more_ = 0;
};

class ProcessTable {
 public:
  /// The options outlive this object.
  explicit ProcessTable(const ServerOptions& options) : options_(options) {}

  /// Null if the process is unknown or was forgotten.
  [[nodiscard]] Process* find(ProcessId id) {
    return const_cast<Process*>(std::as_const(*this).find(id));
  }
  [[nodiscard]] const Process* find(ProcessId id) const {
    const auto found = processes_.find(id);
    return found == processes_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const std::map<ProcessId, Process>& all() const { return processes_; }
  /// True if an agent has processes that have not exited.
  [[nodiscard]] bool any_running() const {
    return std::ranges::any_of(
        processes_, [](const auto& one) { return one.second.agent && !one.second.exited; });
  }
  /// Names the processes that have not asked for a session yet, in the order of their start.
  [[nodiscard]] Names without_session() const {
    Names names;
    for (const auto& [id, process] : processes_)
      if (process.stage == Stage::launched || process.stage == Stage::greeted)
        names.add(process.name());
    return names;
  }
  /// Waiting processes that were in no generation yet.
  [[nodiscard]] const std::set<ProcessId>& newcomers() const { return newcomers_; }

  /// Adds a process that this agent is to start. `rank`: -1 after the first generation.
  Process& launch(Link agent, const std::string& host, std::int32_t rank) {
    Process& process = processes_[++last_id_];
    process.id = last_id_;
    process.agent = agent;
    process.host = host;
    if (rank >= 0) process.order = rank;
    return process;
  }
  /// The refusal of a process with this hello; none if the process can take part.
  [[nodiscard]] std::optional<Refusal> find_refusal(const Hello& hello, bool job_has_begun) const {
    std::string reason = why_refused(hello, job_has_begun);
    return reason.empty() ? std::nullopt : std::optional(Refusal{std::move(reason)});
  }
  Process& greet(Link link, const Hello& hello) {
    const ProcessId id = options_.has_agents ? hello.process : ++last_id_;
    Process& process = processes_[id];
    process.id = id;
    process.link = link;
    process.hello = hello;
    if (!options_.has_agents) process.order = hello.wanted_rank;
    move(process, Stage::greeted);
    return process;
  }
  /// Adds a process of a job that another server has begun.
  Process& adopt(ProcessId id) {
    last_id_ = std::max(last_id_, id);
    Process& process = processes_[id];
    process.id = id;
    return process;
  }
  void move(Process& process, Stage stage) {
    process.stage = stage;
    if (stage == Stage::waiting && process.age == 0)
      newcomers_.insert(process.id);
    else
      newcomers_.erase(process.id);
    dirty_ |= stage == Stage::left || stage == Stage::lost;
  }

  /// Waits for the connection of an exited process to close, since its last messages may still
  /// arrive.
  void await_close(const Process& process, Time until) { exits_.emplace(process.id, until); }
  void end_awaiting_close(const Process& process) { exits_.erase(process.id); }
  /// Removes and returns exited processes whose connections did not close in time.
  [[nodiscard]] std::vector<ProcessId> take_overdue(Time now) {
    std::vector<ProcessId> overdue;
    for (const auto& [id, until] : exits_)
      if (now >= until) overdue.push_back(id);
    for (const ProcessId id : overdue) exits_.erase(id);
    return overdue;
  }
  [[nodiscard]] std::optional<Time> next_time() const {
    std::optional<Time> next;
    for (const auto& [id, until] : exits_)
      if (!next || until < *next) next = until;
    return next;
  }

  /// True if a process or an agent may have gone since the last `sweep`.
  [[nodiscard]] bool is_dirty() const { return dirty_; }
  void mark_dirty() { dirty_ = true; }
  /// Forgets processes that cannot send the server anything any more. Without agents, a process
  /// that has left stays in the table, so that no other process can take its rank.
  void sweep() {
    if (!std::exchange(dirty_, false)) return;
    std::erase_if(processes_, [&](const auto& entry) {
      const Process& process = entry.second;
      if (process.link || (process.agent && !process.exited)) return false;
      if (process.stage == Stage::left) return options_.has_agents;
      return process.stage == Stage::lost;
    });
  }

 private:
  /// A hint for messages: a program that a rank starts inherits the rank's environment, and so
  /// connects as that rank.
  static constexpr const char* for_children =
      ". A program that a rank starts, and that is no rank itself, needs KOLO_LAUNCHER=none";
  [[nodiscard]] std::string why_refused(const Hello& hello, bool job_has_begun) const {
    if (options_.has_agents) {
      const Process* const process = find(hello.process);
      return process != nullptr && process->stage == Stage::launched && !process->exited
                 ? ""
                 : fmt::format("it is not a process of this job, or no longer one{}", for_children);
    }
    if (hello.wanted_rank < 0 || hello.wanted_rank >= options_.np)
      return fmt::format("rank {} does not exist in a job of {} ranks", hello.wanted_rank,
                         options_.np);
    for (const auto& [id, other] : processes_)
      if (other.order == hello.wanted_rank)
        return fmt::format("rank {} is taken by process {} on {}{}", hello.wanted_rank,
                           other.hello.pid, other.hello.host, for_children);
    return job_has_begun ? "the job has begun without it" : "";
  }

  const ServerOptions& options_;
  std::map<ProcessId, Process> processes_{};
  std::set<ProcessId> newcomers_{};
  std::map<ProcessId, Time> exits_{};  // exited processes, and when to stop awaiting the close
  ProcessId last_id_ = 0;
  bool dirty_ = false;
};

}  // namespace kolo::internal::rendezvous
