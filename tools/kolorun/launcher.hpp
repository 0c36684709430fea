// SPDX-License-Identifier: Apache-2.0
// The launcher: starts an agent on each host of a job by ssh, and watches the agents.
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

#include "hosts/discovery.hpp"
#include "hosts/host_choice.hpp"
#include "hosts/hosts.hpp"
#include "node/file_descriptor.hpp"
#include "options.hpp"
#include "output/tagged_stream.hpp"
#include "rendezvous/server/cooldown.hpp"
#include "serving.hpp"

namespace kolorun {

/// Runs in the first kolorun, together with the server. The agent of this host is a child process
/// too.
class Launcher {
 public:
  /// Throws kolo::Error if no server can be started.
  Launcher(const Options& options, const node::FileDescriptor& signals);

  /// Runs until the job is over and no agent is left.
  rendezvous::JobEnd run();

 private:
  using Clock = std::chrono::steady_clock;

  struct Remote {
    Host host;
    rendezvous::ProcessId number;
    bool local;
    bool wanted = true;  // false: the host is to leave
    bool asked = false;  // its agent was asked to end, for good or to restart
    int slots = 0;       // number of slots when its agent started
    pid_t pid = -1;      // process id of its ssh, or of a local agent
    std::optional<Clock::time_point> not_before{};  // its agent may not start earlier
    Clock::time_point started{};                    // when its agent was started last
    bool is_connected = false;                      // and stays, as far as the server knows
    bool has_connected = false;                     // since its agent was started last
    node::FileDescriptor input{};                   // standard input of the agent
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
  [[nodiscard]] bool has_spare() const;

  // launcher_agents.cpp
  void start_needed();
  [[nodiscard]] HostState state_of(const Remote& remote) const;
  void start(Remote& remote);
  void start_agent(Remote& remote);
  [[nodiscard]] std::vector<std::string> command_for(const Remote& remote) const;
  [[nodiscard]] std::vector<std::string> arguments_for(const Remote& remote) const;
  [[nodiscard]] std::vector<std::string> variables_of_other_hosts() const;
  [[nodiscard]] std::string master() const;
  void copy_input();
  void copy_output();

  const Options& options_;
  const std::string program_;    // path of kolorun
  const std::string directory_;  // working directory of the processes
  const node::FileDescriptor& signals_;
  std::vector<std::string> addresses_{};  // addresses of the server that agents are given
  std::unique_ptr<Serving> serving_{};
  std::list<Remote> remotes_{};
  rendezvous::ProcessId last_number_ = 0;
  kolo::internal::rendezvous::Cooldown cooldown_;
  std::optional<Discovery> discovery_{};
  bool has_input_;                             // standard input has data for the first host
  std::optional<Clock::time_point> end_at_{};  // when to end the remaining agents
  bool kills_ = false;                         // use SIGKILL next time, not SIGTERM
  bool is_ending_ = false;                     // a signal to end has come
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace kolorun
