// SPDX-License-Identifier: Apache-2.0
// The agent of one host: runs its processes as the rendezvous server requests.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memory_kills.hpp"
#include "node/file_descriptor.hpp"
#include "node/random.hpp"
#include "options.hpp"
#include "output/job_status.hpp"
#include "output/tagged_stream.hpp"
#include "rendezvous/message_stream.hpp"
#include "servers/server_search.hpp"

namespace kolorun {

// until a process that the job has given up is killed, and until it is killed again
inline constexpr std::chrono::seconds patience_with_lost{5};
// exit status after a signal: this plus the signal's number
inline constexpr int signal_base = 128;

inline constexpr const char* ignored_stop =
    "SIGTSTP (Ctrl-Z) is ignored: other hosts would give this one up";

/// Blocks the signals that kolorun handles, in this thread and in those that it starts later.
/// Returns a descriptor from which the signals are read.
[[nodiscard]] node::FileDescriptor open_signals();
/// The next signal that has come; none if there is none. The end of --timeout is a SIGTERM. Several
/// SIGTERM within a second are one, as are the end of --timeout and a SIGTERM.
[[nodiscard]] std::optional<int> next_signal(const node::FileDescriptor& signals);
/// True once a signal or --timeout has told kolorun, or the server that serves it, to end the job.
[[nodiscard]] bool is_told_to_end();
/// Lets --timeout begin, unless it is zero.
void start_timeout(std::chrono::nanoseconds timeout);

/// Identifies an agent that no launcher has given a number.
[[nodiscard]] inline rendezvous::ProcessId any_agent_number() {
  return kolo::internal::random_number() | 1;
}

class Agent {
 public:
  /// `servers`: addresses at which the server may be. `pass_signal` passes signals to the agents of
  /// other hosts if the server is in this process: a signal then ends the job, not only this host.
  Agent(const Options& options, std::vector<transport::Endpoint> servers,
        std::function<void(int)> pass_signal, const node::FileDescriptor& signals);

  /// Lets the agent become the server while it searches for its first one. `serve` starts a server
  /// and returns `pass_signal`; if it cannot, it returns nothing and stores the reason.
  void may_serve(std::function<std::function<void(int)>(std::string&)> serve) {
    serve_ = std::move(serve);
  }
  /// A standby in this process.
  struct OwnStandby {
    std::function<std::function<void(int)>()> take_over{};  // returns `pass_signal`
    std::function<bool()> rules{};                          // from then on, no other server does
    int ruling = -1;                                        // readable once it rules
  };
  /// Lets the agent know that this kolorun has the standby. The agent calls `take_over` once the
  /// standby has become its server.
  void stands_by(OwnStandby standby) { own_standby_ = std::move(standby); }
  /// Runs until the job is over and no process is left. Returns the status of the job, or of this
  /// host if it ends first. Throws kolo::Error if no server is found, or if the server refuses this
  /// host.
  int run();
  /// True if the server has ended the job or removed this host; false if the agent lost the server.
  [[nodiscard]] bool was_told() const { return told_; }
  /// True if the job is to start again.
  [[nodiscard]] bool restarts() const { return restarts_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Running {
    rendezvous::ProcessId id;
    std::int32_t rank = -1;
    std::int32_t slot = 0;
    std::optional<Clock::time_point> end_at{};   // time of SIGTERM
    std::optional<Clock::time_point> kill_at{};  // time of SIGKILL
    std::shared_ptr<LastLines> last_lines{};     // end of its standard error, if that is copied
    std::string error_file{};                    // or where it goes
    std::int64_t memory_kills = 0;               // at its start
  };

  enum class Sender : std::uint8_t { somebody, server };

  /// How an agent loses its server.
  enum class Loss : std::uint8_t {
    closed,   // the connection has ended
    silence,  // nothing was heard for half of the lease
    deposed,  // the server says so, or the standby
  };

  // agent.cpp: the server, and signals
  [[nodiscard]] rendezvous::Hello make_hello() const;
  void connect(std::chrono::nanoseconds timeout);
  [[nodiscard]] bool connected() const { return connection_ && !connection_->closed(); }
  void wait();
  [[nodiscard]] int milliseconds_to_wait() const;
  void receive();
  void take(const rendezvous::Message& message);
  void obey(const rendezvous::End& end);
  void lose_server(const std::string& reason, Loss loss);
  [[nodiscard]] bool is_deposed() const;
  [[nodiscard]] bool change_server(const std::string& reason, Loss loss);
  void vote(const rendezvous::Vote& vote, Clock::duration patience);
  [[nodiscard]] bool may_change_server() const {
    return electorate_ && !pass_signal_ && !stopping_ && !is_told_to_end();
  }
  [[nodiscard]] rendezvous::Vote make_vote(bool has_ended) const;
  void use_server(FoundServer found);
  /// True if the user has started this kolorun, and another one has the server and rank 0.
  [[nodiscard]] bool joins_server_of_rank_0() const {
    return options_.rendezvous && options_.joining.host.empty() && !pass_signal_;
  }
  void keep_alive();
  void take_signals();
  void on_signal(int signal);
  void stop_all();
  void end_by_signal(int signal, Sender sender);
  void kill_now();
  void say(const std::string& text) const;

  // agent_processes.cpp
  void start(const rendezvous::Start& more);
  void start(const rendezvous::Launch& launch, std::span<const int> processors);
  [[nodiscard]] std::vector<std::string> variables_for(const rendezvous::Launch& launch) const;
  void reap();
  void report(const Running& child, pid_t pid, int how);
  void report(const rendezvous::Exited& exited);
  void report_not_started(rendezvous::ProcessId process, int status, const std::string& problem);
  void copy_output();
  void signal_all(int signal);
  /// Ends all processes; `patience` is the time that they get to end by themselves.
  void end_all(int status, const std::string& reason, Clock::duration patience = {});
  void kill_due();

  const Options& options_;
  std::vector<transport::Endpoint> servers_;
  std::function<void(int)> pass_signal_;
  std::function<std::function<void(int)>(std::string&)> serve_{};
  std::optional<OwnStandby> own_standby_{};
  std::optional<rendezvous::Electorate> electorate_{};  // as long as this agent may vote
  std::list<rendezvous::Exited> exits_{};               // those that the standby may have to learn
  std::string no_server_{};                             // why this process has no server
  const node::FileDescriptor& signals_;
  rendezvous::ProcessId number_;
  std::optional<rendezvous::MessageStream> connection_{};
  transport::Endpoint server_{};  // where it was found
  transport::SystemAddress server_address_{};
  std::chrono::nanoseconds lease_;
  Clock::time_point heard_{};
  Clock::time_point sent_{};
  Clock::time_point looked_{};  // time of the last check for messages
  std::map<pid_t, Running> children_{};
  std::list<TaggedStream> streams_{};
  const MemoryKills memory_kills_{};
  const JobStatus job_status_{};
  std::optional<rendezvous::End> deposition_{};  // of a server that has to leave the job to another
  bool awaits_standby_ = false;
  std::optional<int> delayed_stop_{};  // SIGTERM that has come meanwhile
  bool removing_ = false;
  bool stopping_ = false;  // the processes have got SIGTERM, and may end in good order
  std::array<bool, 2> has_sent_stop_{};  // by sender
  bool told_ = false;
  bool restarts_ = false;
  std::string last_words_{};     // said once all processes have ended; "": none
  std::optional<int> status_{};  // set once this agent is to end
};

}  // namespace kolorun
