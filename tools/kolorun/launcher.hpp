// SPDX-License-Identifier: Apache-2.0
// Starts an agent on each host of a job, by ssh, and watches it.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "discovery.hpp"
#include "hosts.hpp"
#include "node/file_descriptor.hpp"
#include "options.hpp"
#include "output.hpp"
#include "rendezvous/server/cooldown.hpp"
#include "serving.hpp"

namespace kolorun {

/// In the first kolorun, with the server. An agent on this host is a child process too.
class Launcher {
 public:
  /// Throws kolo::Error if no server can be started.
  Launcher(const Options& options, const node::FileDescriptor& signals);

  /// Until the job is over, and no agent is left.
  rendezvous::JobEnd run();

 private:
  using Clock = std::chrono::steady_clock;

  struct Remote {
    Host host;
    rendezvous::ProcessId number;
    bool local;
    bool wanted = true;  // else it is to go
    bool asked = false;  // its agent has been asked to go, for now or to come again
    int slots = 0;       // with which it was started
    pid_t pid = -1;      // of its ssh, or of the agent if it is local
    std::optional<Clock::time_point> start_at{};
    node::FileDescriptor input{};  // of the agent
    std::string unsent{};
    std::list<TaggedStream> streams{};

    [[nodiscard]] bool is_held() const {
      return std::ranges::any_of(streams, &TaggedStream::is_held);
    }
  };

  // launcher.cpp
  void wait();
  [[nodiscard]] int milliseconds_to_wait() const;
  void reap();
  void on_end(Remote& remote, int how);
  void try_later(Remote& remote, const std::string& why);
  void have_removed(Remote& remote, const std::string& why);
  void end_late();
  void take_signals();
  [[nodiscard]] std::string use_discovered(const std::vector<Host>& hosts);
  void set_hosts(const std::vector<Host>& wanted);
  [[nodiscard]] bool any_left() const;

  // launcher_agents.cpp
  void start_due();
  void start(Remote& remote);
  void start_agent(Remote& remote);
  [[nodiscard]] std::vector<std::string> command_for(const Remote& remote) const;
  [[nodiscard]] std::vector<std::string> arguments_for(const Remote& remote) const;
  [[nodiscard]] std::vector<std::string> variables_of_other_hosts() const;
  [[nodiscard]] std::string master() const;
  void copy_input();
  void copy_output();

  const Options& options_;
  const std::string program_;    // kolorun
  const std::string directory_;  // of the processes
  const node::FileDescriptor& signals_;
  std::vector<std::string> addresses_{};  // of the server, as agents are told
  std::unique_ptr<Serving> serving_{};
  std::list<Remote> remotes_{};
  rendezvous::ProcessId last_number_ = 0;
  kolo::internal::rendezvous::Cooldown cooldown_;
  std::optional<Discovery> discovery_{};
  bool has_input_;                             // to be passed on to the first host
  std::optional<Clock::time_point> end_at_{};  // of agents that do not end by themselves
  bool kills_ = false;                         // then
  bool is_ending_ = false;                     // a signal has come
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace kolorun
