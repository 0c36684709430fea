// SPDX-License-Identifier: Apache-2.0
// A job of three hosts with a standby, for tests of the server.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "server_fixture.hpp"

namespace kolo::internal::rendezvous {

using namespace std::chrono_literals;

/// The server of hosts 1 (its own), 2 (the standby's) and 3, each with one process. The link of a
/// host's agent is the host's number, and its agent has ten times that number.
class StandbyTest : public ServerTest {
 protected:
  static ServerOptions options(bool elastic) {
    ServerOptions options = options_of(elastic);
    options.np = options.max_np = 3;
    return options;
  }
  static Hello agent(int host) {
    return {.role = Role::agent,
            .process = static_cast<ProcessId>(10 * host),
            .host = "host" + std::to_string(host),
            .wanted_rank = host == 1 ? 0 : 1,
            .slots = 1,
            .version = "1",
            .stands_by = host == 2};
  }
  void come(Link link, const Hello& hello) {
    server_->on_open(link, hello.host, now_);
    shake_hands(*server_, link, hello, now_);
  }

  void begin_first(bool elastic = true) {
    server_.emplace(options(elastic), [] { return std::uint64_t{4}; });
    for (const int host : {1, 2, 3}) come(static_cast<Link>(host), agent(host));
  }
  /// Its processes are in a session.
  void begin_session() {
    for (const ProcessId process : {1U, 2U, 3U}) add_process(process + 10, process);
    static_cast<void>(server_->take());
  }

  void begin_standby(bool elastic = true) {
    ServerOptions standing_by = options(elastic);
    standing_by.stands_by = true;
    standing_by.max_restarts = restarts_;
    server_.emplace(standing_by, [] { return std::uint64_t{4}; });
    for (const ProcessId process : {2U, 3U})
      come(process + 10, {.process = process, .host = "host", .pid = 100, .version = "1"});
  }
  void vote(int host, Time silence, int slot = 0, const std::string& job = "") {
    Hello hello = agent(host);
    hello.votes = true;
    hello.job = job;
    come(static_cast<Link>(host), hello);
    const auto process = static_cast<ProcessId>(host);
    server_->on_message(process,
                        Vote{.voters = {10, 20, 30},
                             .server = 10,
                             .standby = 20,
                             .processes = {{process, host - 1, slot}},
                             .silence = silence,
                             .has_ended = silence == Time{}},  // it needs no silence
                        now_);
  }
  void stand(ProcessId process, GenerationNumber generation = 1) {
    server_->on_message(process + 10, Standing{generation, 1, {1, 2, 3}, false}, now_);
  }
  void pass(Time time) {
    now_ += time;
    server_->on_time(now_);
  }

  static std::string notes(const std::vector<Action>& actions) {
    std::string text;
    for (const Action& action : actions)
      if (const auto* const note = std::get_if<Note>(&action)) text += note->text + '\n';
    return text;
  }

  int restarts_ = 0;  // as often as the job may start again
};

}  // namespace kolo::internal::rendezvous
