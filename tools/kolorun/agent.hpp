// SPDX-License-Identifier: Apache-2.0
// Runs the processes of one host as the rendezvous server says.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "node/file_descriptor.hpp"
#include "options.hpp"
#include "output.hpp"
#include "rendezvous/message_stream.hpp"

namespace kolorun {

namespace node = kolo::internal::node;

inline constexpr std::chrono::seconds grace{5};  // from SIGTERM to SIGKILL
inline constexpr int signal_base = 128;          // plus its number: the status of who it ends

inline constexpr const char* ignored_stop =
    "SIGTSTP (Ctrl-Z) is ignored: other hosts would give this one up";

/// A descriptor from which the signals that kolorun handles are read; they interrupt nothing any
/// more, in no thread that is started later.
[[nodiscard]] node::FileDescriptor open_signals();

class Agent {
 public:
  /// `servers`: addresses at which the server may be. `pass_signal`: to the agents of other hosts,
  /// if the server is in this process; then a signal to end means the job, not this host.
  Agent(const Options& options, std::vector<transport::Endpoint> servers,
        std::function<void(int)> pass_signal, const node::FileDescriptor& signals);

  /// While it looks for its first server: `serve` starts one if it can, and returns `pass_signal`;
  /// else it says why not.
  void may_serve(std::function<std::function<void(int)>(std::string&)> serve) {
    serve_ = std::move(serve);
  }
  /// Until the job is over and no process is left. Its status, or this host's if that ends first.
  /// Throws kolo::Error if there is no server, or if it refuses this host.
  int run();
  /// The job is over, or this host removed from it; not that this agent has lost the server.
  [[nodiscard]] bool was_told() const { return told_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Running {
    rendezvous::ProcessId id;
    std::optional<Clock::time_point> end_at{};   // by SIGTERM
    std::optional<Clock::time_point> kill_at{};  // by SIGKILL
  };

  // agent.cpp: the server, and signals
  [[nodiscard]] rendezvous::Hello make_hello() const;
  void connect(std::chrono::nanoseconds timeout);
  [[nodiscard]] bool connected() const { return connection_ && !connection_->closed(); }
  void wait();
  [[nodiscard]] int milliseconds_to_wait() const;
  void receive();
  void take(const rendezvous::Message& message);
  void lose_server(const std::string& reason, bool kills);
  void keep_alive();
  void take_signals();
  void on_signal(int signal);
  void stop_all();
  void end_by_signal(int signal);
  void say(const std::string& text) const;

  // agent_processes.cpp
  struct Redirection {
    node::FileDescriptor out{};
    node::FileDescriptor error{};
  };
  [[nodiscard]] Redirection redirect(const rendezvous::Launch& launch);
  void start(const rendezvous::Launch& launch);
  [[nodiscard]] std::vector<std::string> variables_for(const rendezvous::Launch& launch) const;
  void reap();
  void report(rendezvous::ProcessId process, int status);
  void copy_output();
  void signal_all(int signal);
  /// `patience`: the processes may end by themselves for so long.
  void end_all(int status, const std::string& reason, Clock::duration patience = {});
  void kill_due();

  const Options& options_;
  std::vector<transport::Endpoint> servers_;
  std::function<void(int)> pass_signal_;
  std::function<std::function<void(int)>(std::string&)> serve_{};
  std::string no_server_{};  // why there is none here
  const node::FileDescriptor& signals_;
  rendezvous::ProcessId number_;
  std::optional<rendezvous::MessageStream> connection_{};
  transport::Endpoint server_{};  // where it was found
  std::chrono::nanoseconds lease_;
  Clock::time_point heard_{};
  Clock::time_point sent_{};
  Clock::time_point looked_{};  // at what has come
  std::map<pid_t, Running> children_{};
  std::list<TaggedStream> streams_{};
  bool removing_ = false;
  bool told_ = false;
  std::optional<int> status_{};  // once it is to end
};

}  // namespace kolorun
