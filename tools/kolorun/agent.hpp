// SPDX-License-Identifier: Apache-2.0
// Runs the processes of one host as the rendezvous server says.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"
#include "options.hpp"
#include "output.hpp"
#include "rendezvous/connection.hpp"

namespace kolorun {

namespace node = kolo::internal::node;

/// A descriptor from which the signals that kolorun handles are read; they interrupt nothing any
/// more, in no thread that is started later.
[[nodiscard]] node::FileDescriptor open_signals();

class Agent {
 public:
  /// Connects to the server. `serves`: it is in this process, so a signal to end means the job, not
  /// this host. Throws kolo::Error.
  Agent(const Options& options, const rendezvous::Endpoint& server, bool serves,
        const node::FileDescriptor& signals);

  /// Until the job is over and no process is left. Its status, or this host's if that ends first.
  int run();
  /// The server has ended the job, or removed this host.
  [[nodiscard]] bool was_told() const { return told_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Running {
    rendezvous::ProcessId id;
    std::optional<Clock::time_point> end_at{};   // by SIGTERM
    std::optional<Clock::time_point> kill_at{};  // by SIGKILL
  };

  void wait();
  [[nodiscard]] int milliseconds_to_wait() const;
  void receive();
  void take(const rendezvous::Message& message);
  void start(const rendezvous::Launch& launch);
  [[nodiscard]] std::vector<std::string> variables_for(const rendezvous::Launch& launch) const;
  void reap();
  void report(rendezvous::ProcessId process, int status);
  void copy_output();
  void take_signals();
  void on_signal(int signal);
  /// `patience`: the processes may end by themselves for so long.
  void end_all(int status, const std::string& reason, Clock::duration patience = {});
  void kill_due();
  void keep_alive();

  const Options& options_;
  rendezvous::Endpoint server_;
  bool serves_;
  const node::FileDescriptor& signals_;
  rendezvous::Connection connection_;
  bool welcome_ = false;
  std::chrono::nanoseconds lease_{};
  Clock::time_point heard_ = Clock::now();
  Clock::time_point sent_ = Clock::now();
  std::map<pid_t, Running> children_{};
  std::list<TaggedStream> streams_{};
  bool removing_ = false;
  bool told_ = false;
  std::optional<int> status_{};  // once it is to end
};

}  // namespace kolorun
