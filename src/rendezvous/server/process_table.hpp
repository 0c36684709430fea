// SPDX-License-Identifier: Apache-2.0
// The processes of a job, from their launch until nothing can come from them any more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/server/actions.hpp"
#include "rendezvous/server/server_options.hpp"

namespace kolo::internal::rendezvous {

enum class Stage : std::uint8_t {
  launched,  // its agent starts it
  greeted,   // it is connected
  waiting,   // it waits for the next generation
  member,    // it is in the current generation
  left,      // it has done its part
  lost,
};

struct Process {
  ProcessId id = 0;
  std::optional<Link> agent{};
  std::optional<Link> link{};
  Stage stage = Stage::launched;   // ProcessTable::move changes it
  std::int32_t order = max_ranks;  // among newcomers
  std::int32_t rank = -1;          // in its latest generation; -1: none
  Hello hello{};
  std::uint64_t commit = 0;
  GenerationNumber age = 0;  // its first generation; 0: none yet
  Time joined{};
  std::uint64_t sequence = 0;  // of its next collective call
  bool completed = false;      // the other members no longer need it
  bool exited = false;
  int status = 0;        // its exit status, once it has exited
  std::string reason{};  // why it is lost

  [[nodiscard]] bool is_living_member() const {
    return stage == Stage::member || (stage == Stage::waiting && age > 0);
  }
  /// Its rank, process and host, for people.
  [[nodiscard]] std::string name() const;
};

class ProcessTable {
 public:
  /// The options outlive this object.
  explicit ProcessTable(const ServerOptions& options) : options_(options) {}

  /// Null if the process is not known, or was forgotten.
  [[nodiscard]] Process* find(ProcessId id);
  [[nodiscard]] const Process* find(ProcessId id) const;
  [[nodiscard]] const std::map<ProcessId, Process>& all() const { return processes_; }
  /// Processes that wait and were in no generation.
  [[nodiscard]] const std::set<ProcessId>& newcomers() const { return newcomers_; }

  /// A process that this agent is to start. `rank`: -1 after the first generation.
  Process& launch(Link agent, std::int32_t rank);
  /// Why a process with this hello cannot take part; none if it can.
  [[nodiscard]] std::optional<Refusal> find_refusal(const Hello& hello, bool job_has_begun) const;
  Process& greet(Link link, const Hello& hello);
  void move(Process& process, Stage stage);

  /// The process has exited, but its last messages may still arrive until its connection closes.
  void await_close(const Process& process, Time until) { exits_.emplace(process.id, until); }
  void end_awaiting_close(const Process& process) { exits_.erase(process.id); }
  /// Exited processes whose connections did not close in time. They are no longer awaited.
  [[nodiscard]] std::vector<ProcessId> take_overdue(Time now);
  [[nodiscard]] std::optional<Time> next_time() const;

  /// True if a process or an agent may have gone since the last `sweep`.
  [[nodiscard]] bool is_dirty() const { return dirty_; }
  void mark_dirty() { dirty_ = true; }
  /// Forgets the processes from which nothing can come any more.
  void sweep();

 private:
  [[nodiscard]] std::string why_refused(const Hello& hello, bool job_has_begun) const;

  const ServerOptions& options_;
  std::map<ProcessId, Process> processes_{};
  std::set<ProcessId> newcomers_{};
  std::map<ProcessId, Time> exits_{};  // until when the close of the connection is awaited
  ProcessId last_id_ = 0;
  bool dirty_ = false;
};

}  // namespace kolo::internal::rendezvous
