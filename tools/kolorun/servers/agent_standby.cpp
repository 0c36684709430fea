// SPDX-License-Identifier: Apache-2.0
// An agent that has lost its server votes for the standby.
#include <fmt/format.h>

#include <kolo/error.hpp>
#include <utility>

#include "kolorun/agent.hpp"
#include "rendezvous/standby_link.hpp"

namespace kolorun {

rendezvous::Vote Agent::make_vote(bool has_ended) const {
  rendezvous::Vote vote{.voters = electorate_->voters,
                        .server = electorate_->server,
                        .standby = electorate_->standby,
                        .silence = Clock::now() - heard_,
                        .has_ended = has_ended};
  for (const auto& [pid, child] : children_)
    vote.processes.push_back({child.id, child.rank, child.slot});
  for (const rendezvous::Exited& exited : exits_)
    vote.processes.push_back({exited.process, -1, -1});
  return vote;
}

/// Asks the standby to take over. The processes of this host meanwhile run on. If the server may be
/// only cut off, they do so for the lease at most, since it then goes on without them. If it has
/// ended, nobody else can have the job, and a vote that is taken back too soon would end it. True
/// if this agent has a server, or ends.
bool Agent::change_server(const std::string& reason, Loss loss) {
  if (!may_change_server()) return false;
  say(fmt::format("{}; the standby at {} is to take over", reason,
                  transport::to_string(*options_.standby)));
  const bool server_ended =
      loss == Loss::closed && connection_->has_ended() && has_ended(server_address_);
  const rendezvous::Vote ballot = make_vote(server_ended);
  electorate_.reset();
  connection_.reset();
  awaits_standby_ = true;
  std::string problem;
  try {
    vote(ballot, server_ended            ? rendezvous::patience_with_standby(lease_)
                 : loss == Loss::silence ? lease_ / 2 - lease_ / 8
                                         : lease_ / 2);
  } catch (const kolo::Error& error) {
    say(problem = error.what());
    number_ = any_agent_number();  // the vote stays given, so this agent is another one from now on
  }
  awaits_standby_ = false;
  if (const auto stop = std::exchange(delayed_stop_, {})) on_signal(*stop);
  if (problem.empty() && !status_) receive();
  return problem.empty();
}

/// Returns with the standby as the server, or with a status. Throws kolo::Error.
void Agent::vote(const rendezvous::Vote& vote, Clock::duration patience) {
  const std::vector<transport::Endpoint> standby{*options_.standby};
  rendezvous::Hello hello = make_hello();
  hello.votes = true;
  const auto goes_on = [&] {
    take_signals();
    return !status_;
  };
  std::optional<FoundServer> found = find_server({.addresses = standby,
                                                  .hello = hello,
                                                  .vote = vote,
                                                  .secret = options_.server.secret,
                                                  .timeout = patience,
                                                  .no_server = no_server_,
                                                  .may_be_put_off = false,
                                                  .goes_on = goes_on,
                                                  .say = [](const std::string&) {}});
  if (!found) return;
  use_server(std::move(*found));
  servers_ = standby;
  for (const rendezvous::Exited& exited : std::exchange(exits_, {})) connection_->send(exited);
  if (own_standby_) pass_signal_ = own_standby_->take_over();
}

}  // namespace kolorun
