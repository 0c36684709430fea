// SPDX-License-Identifier: Apache-2.0
// The options of a job's rendezvous server, and the actions that it asks its caller to carry out.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "base/port_range.hpp"
#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// The time since the server started.
using Time = std::chrono::nanoseconds;

struct ServerOptions {
  Secret secret{};
  std::string version{};   // Kolo's version; the server refuses others
  std::string job{};       // the job that agents must name
  int np = 1;              // number of ranks in the first generation
  int min_np = 1;          // the job does not continue with fewer ranks
  int max_np = 1;          // the server does not start more ranks
  bool elastic = false;    // false: one lost process ends the job, and min_np and max_np equal np
  bool stands_by = false;  // serves only once the agents of a lost server say so
  bool wants_standby = false;  // some host is to stand by
  bool has_agents = true;      // false: np processes connect by themselves, each with a wanted rank
  Time hello_timeout = std::chrono::seconds(5);
  Time start_timeout = std::chrono::seconds(600);       // from the start to the first generation
  Time elastic_timeout = std::chrono::seconds(600);     // from a loss to the next generation
  Time collective_timeout = std::chrono::seconds(600);  // from a call's first rank to its last
  Time end_timeout = std::chrono::seconds(15);          // from the job's end to that of its agents
  Time lease = std::chrono::seconds(10);        // an agent that is silent for this long is lost
  Time growth_delay = std::chrono::seconds(1);  // newcomers within this time join together
  Time min_cooldown = std::chrono::seconds(10);
  Time max_cooldown = std::chrono::seconds(600);
  int max_restarts = 0;             // how many times a job that is not elastic starts again
  int restarts = 0;                 // how many times it has
  int reset_limit = -1;             // losses after which the job fails; negative: no limit
  PortRange port_range{};           // of the server, if it has no fixed port
  std::size_t max_strangers = 256;  // strangers, in addition to the connections of max_np ranks
};

/// The number of a connection. Numbers are never reused.
using Link = std::uint64_t;

struct Send {
  Link link;
  std::shared_ptr<const Message> message;  // several sends may share one
};
/// The other side is trusted: all later messages on the connection have tags.
struct Authenticate {
  Link link;
  transport::FrameKeys keys;
};
/// Close the connection after all earlier sends have left. The caller no longer reports its events.
struct Close {
  Link link;
};
/// Write a line to the log.
struct Note {
  LogLevel level;
  std::string text;
};
/// The job is over. Agents and processes may remain connected until they have ended.
struct Finish {
  int status;
  std::string reason;
  bool restarts = false;       // the job is to start again, with a new server
  std::string last_lines{};    // what the process that has failed first wrote to standard error
  bool has_processes = false;  // some are running, and must be ended
};
/// The connected agents have changed, or the number of slots that the job lacks. A launcher starts
/// agents on more hosts while slots are missing.
struct AgentsChanged {
  std::vector<ProcessId> agents{};  // numbers of the hellos of those that stay, in ascending order
  int missing_slots = 0;            // for max_np processes; 0 if the job starts none any more

  friend bool operator==(const AgentsChanged&, const AgentsChanged&) = default;
};
/// The standby takes over. The caller does its part before it tells anybody else.
struct Ruling {};
using Action = std::variant<Send, Authenticate, Close, Note, Finish, AgentsChanged, Ruling>;

/// Actions in the order in which the caller must carry them out.
class Actions {
 public:
  void send(Link link, Message message) {
    send(link, std::make_shared<const Message>(std::move(message)));
  }
  void send(Link link, std::shared_ptr<const Message> message) {
    actions_.emplace_back(Send{link, std::move(message)});
  }
  void authenticate(Link link, const transport::FrameKeys& keys) {
    actions_.emplace_back(Authenticate{link, keys});
  }
  void close(Link link) { actions_.emplace_back(Close{link}); }
  void note(LogLevel level, std::string text) {
    actions_.emplace_back(Note{level, std::move(text)});
  }
  void finish(Finish finish) { actions_.emplace_back(std::move(finish)); }
  void rule() { actions_.emplace_back(Ruling{}); }
  void change_agents(AgentsChanged changed) { actions_.emplace_back(std::move(changed)); }

  [[nodiscard]] std::vector<Action> take() { return std::exchange(actions_, {}); }

 private:
  std::vector<Action> actions_{};
};

}  // namespace kolo::internal::rendezvous
