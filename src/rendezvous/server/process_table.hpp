// SPDX-License-Identifier: Apache-2.0
// The processes of a job, from their launch until no more messages or exits can come from them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/server/server_interface.hpp"

namespace kolo::internal::rendezvous {

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
  int status = 0;        // the exit status, once it has exited
  std::string reason{};  // the reason of its loss

  [[nodiscard]] bool is_living_member() const {
    return stage == Stage::member || (stage == Stage::waiting && age > 0);
  }
  /// Describes the process by its rank, process ID and host, for messages.
  [[nodiscard]] std::string name() const;
};

class ProcessTable {
 public:
  /// The options outlive this object.
  explicit ProcessTable(const ServerOptions& options) : options_(options) {}

  /// Null if the process is unknown or was forgotten.
  [[nodiscard]] Process* find(ProcessId id);
  [[nodiscard]] const Process* find(ProcessId id) const;
  [[nodiscard]] const std::map<ProcessId, Process>& all() const { return processes_; }
  /// Waiting processes that were in no generation yet.
  [[nodiscard]] const std::set<ProcessId>& newcomers() const { return newcomers_; }

  /// Adds a process that this agent is to start. `rank`: -1 after the first generation.
  Process& launch(Link agent, std::int32_t rank);
  /// The refusal of a process with this hello; none if the process can take part.
  [[nodiscard]] std::optional<Refusal> find_refusal(const Hello& hello, bool job_has_begun) const;
  Process& greet(Link link, const Hello& hello);
  void move(Process& process, Stage stage);

  /// Waits for the connection of an exited process to close, since its last messages may still
  /// arrive.
  void await_close(const Process& process, Time until) { exits_.emplace(process.id, until); }
  void end_awaiting_close(const Process& process) { exits_.erase(process.id); }
  /// Removes and returns exited processes whose connections did not close in time.
  [[nodiscard]] std::vector<ProcessId> take_overdue(Time now);
  [[nodiscard]] std::optional<Time> next_time() const;

  /// True if a process or an agent may have gone since the last `sweep`.
  [[nodiscard]] bool is_dirty() const { return dirty_; }
  void mark_dirty() { dirty_ = true; }
  /// Forgets processes from which no more messages or exits can come.
  void sweep();

 private:
  [[nodiscard]] std::string why_refused(const Hello& hello, bool job_has_begun) const;

  const ServerOptions& options_;
  std::map<ProcessId, Process> processes_{};
  std::set<ProcessId> newcomers_{};
  std::map<ProcessId, Time> exits_{};  // exited processes, and when to stop awaiting the close
  ProcessId last_id_ = 0;
  bool dirty_ = false;
};

}  // namespace kolo::internal::rendezvous
