// SPDX-License-Identifier: Apache-2.0
// How a standby takes over from a rendezvous server that is lost: by the votes of its agents.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/server/connections.hpp"
#include "rendezvous/server/server_interface.hpp"

namespace kolo::internal::rendezvous {

struct Inheritance;

/// True if these voters may decide which server rules: more than half of all, or half of them with
/// the agent of the standby. Two servers cannot both have such a set.
[[nodiscard]] inline bool is_quorum(const Electorate& electorate,
                                    const std::function<bool(ProcessId)>& is_in) {
  const auto count = static_cast<std::size_t>(std::ranges::count_if(electorate.voters, is_in));
  const std::size_t all = electorate.voters.size();
  return 2 * count > all || (2 * count == all && is_in(electorate.standby));
}

/// Waits for the votes of the agents, rules once they suffice, and then gathers where the processes
/// stand. The times that callers pass never decrease.
class TakeOver {
 public:
  /// The arguments outlive this object.
  TakeOver(const ServerOptions& options, Connections& connections, Actions& actions)
      : options_(options), connections_(connections), actions_(actions) {}

  /// A stranger has proved that it knows the secret.
  void greet(Link link, const Hello& hello, Time now);
  /// A message of somebody who was admitted.
  void on_message(Link link, const Message& message, Time now);
  void on_close(Link link);

  /// True once the votes suffice.
  [[nodiscard]] bool rules() const { return ruling_since_.has_value(); }
  /// True once the standby knows all that it can wait for.
  [[nodiscard]] bool is_complete(Time now) const;
  [[nodiscard]] std::optional<Time> next_time() const;
  /// Call it once, when complete. Refuses the processes that no host has.
  [[nodiscard]] Inheritance inherit();

 private:
  struct Voter {
    Hello hello{};
    std::optional<Vote> vote{};
    Time server_heard{};  // by this voter
    bool is_welcome = false;
  };
  struct Onlooker {
    Hello hello{};
    std::optional<Standing> standing{};
  };

  void count(Time now);
  [[nodiscard]] bool has_vote_of(ProcessId voter) const;
  [[nodiscard]] bool is_held(ProcessId process) const;
  [[nodiscard]] bool guards_job() const;
  void note_end(Link agent, ProcessId process);
  void forget(ProcessId process);
  [[nodiscard]] Time deadline() const;

  const ServerOptions& options_;
  Connections& connections_;
  Actions& actions_;
  std::map<Link, Voter> voters_{};
  std::map<Link, Onlooker> onlookers_{};
  std::vector<std::pair<Link, Message>> messages_{};
  std::set<ProcessId> departed_{};  // closed their connections; their agents tell how they ended
  std::optional<Electorate> electorate_{};  // according to the first vote
  std::optional<Time> ruling_since_{};
  Time server_heard_ = Time::min();  // the last time that a voter has heard the lost server
  bool has_ended_ = true;            // the lost server, according to all who have voted
};

}  // namespace kolo::internal::rendezvous
