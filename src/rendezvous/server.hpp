// SPDX-License-Identifier: Apache-2.0
// Decides who takes part in a job: a state machine without clock, threads or sockets.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "rendezvous/cooldown.hpp"
#include "rendezvous/message.hpp"
#include "rendezvous/refusals.hpp"

namespace kolo::internal::rendezvous {

/// Since the server has started.
using Time = std::chrono::nanoseconds;
/// For hosts to come, until it is said which have.
inline constexpr std::chrono::seconds patience_for_hosts{5};
/// A connection. Not used again.
using Link = std::uint64_t;

struct ServerOptions {
  Secret secret{};
  std::string version{};   // of Kolo; others are refused
  std::string job{};       // what agents must say that they run
  int np = 1;              // ranks of the first generation
  int min_np = 1;          // fewer ranks do not go on
  int max_np = 1;          // more are not started
  bool elastic = false;    // else one lost process ends the job, and min_np and max_np are np
  bool has_agents = true;  // else np processes come by themselves, each with the rank it wants
  Time hello_timeout = std::chrono::seconds(5);
  Time start_timeout = std::chrono::seconds(600);       // until the first generation
  Time elastic_timeout = std::chrono::seconds(600);     // from a loss to the next generation
  Time collective_timeout = std::chrono::seconds(600);  // from a call's first rank to its last
  Time lease = std::chrono::seconds(10);                // an agent silent for so long is lost
  Time growth_delay = std::chrono::seconds(1);  // newcomers that come together join together
  Time min_cooldown = std::chrono::seconds(10);
  Time max_cooldown = std::chrono::seconds(600);
  int reset_limit = -1;             // losses after which the job fails; negative: any number
  std::size_t max_strangers = 256;  // connections without a proof, beside those of max_np ranks
};

// ---- what the caller is to do ----

struct Send {
  Link link;
  std::shared_ptr<const Message> message;  // many sends may share one
};
/// After what was sent has left. The link is not reported any more.
struct Close {
  Link link;
};
struct Note {
  LogLevel level;
  std::string text;
};
/// The job is over. Only agents and processes that have been told remain to go.
struct Finish {
  int status;
  std::string reason;
};
using Action = std::variant<Send, Close, Note, Finish>;

/// Membership of a job is a sequence of generations, and a generation is one session. Within a
/// generation the server also carries the collective calls by which a session starts. Times never
/// decrease from call to call. Not thread-safe.
class Server {
 public:
  /// `random` makes the secrets of generations.
  Server(const ServerOptions& options, std::function<std::uint64_t()> random);

  /// The connection that the next one will close, since too many have not introduced themselves;
  /// none if it will close none. Pass on first what that connection has sent.
  [[nodiscard]] std::optional<Link> next_evicted() const;
  /// `from`: whose connection it is, for people.
  void on_open(Link link, const std::string& from, Time now);
  void on_message(Link link, const Message& message, Time now);
  /// The other side has closed it, it broke, or something came that is no message.
  void on_close(Link link, const std::string& reason, Time now);
  /// kolorun has got this signal: agents pass it on. One that ends programs ends the job.
  void on_signal(int number, Time now);
  /// The hosts of this name go away, at the next commit: as if their agents had said so.
  void remove_host(const std::string& host, const std::string& reason, Time now);
  /// They stay after all, if they have not left.
  void keep_host(const std::string& host, Time now);
  /// Nothing can come of the job.
  void end(int status, const std::string& reason, Time now);
  /// Does what is due. Nothing is due before `next_time`.
  void on_time(Time now);
  [[nodiscard]] std::optional<Time> next_time() const;

  /// The actions to carry out, in this order.
  [[nodiscard]] std::vector<Action> take() { return std::exchange(actions_, {}); }

  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] GenerationNumber generation() const { return number_; }

 private:
  using AgentId = Link;  // its connection

  struct Peer {
    std::string from;
    Time opened;
    std::optional<Hello> hello{};  // that has been answered
    Bytes nonce{};                 // with this
    std::optional<Role> role{};    // none: a stranger
    ProcessId process = 0;
  };

  struct Agent {
    Hello hello{};
    Time heard{};
    std::vector<ProcessId> slots{};  // 0: free
    bool removing = false;
  };

  enum class Stage : std::uint8_t {
    launched,  // an agent starts it
    greeted,   // it has a connection
    waiting,   // for the next generation
    member,    // of the current one
    left,      // it has done its part
    lost,
  };

  struct Process {
    ProcessId id = 0;
    std::optional<AgentId> agent{};
    std::optional<Link> link{};
    Stage stage = Stage::launched;
    std::int32_t order = max_ranks;  // among newcomers
    std::int32_t rank = -1;          // in the latest generation; -1: none
    Hello hello{};
    std::uint64_t commit = 0;
    GenerationNumber age = 0;
    Time joined{};
    std::uint64_t sequence = 0;  // of its next collective call
    bool completed = false;      // the other members no longer need it
    bool exited = false;
    int status = 0;        // then
    std::string reason{};  // why it is lost
  };

  struct Collective {
    Time since;
    std::vector<std::optional<Payload>> parts;
    std::size_t count = 0;
    std::size_t bytes = 0;
  };

  /// A process that others report as doing nothing in this generation.
  struct Suspect {
    std::set<ProcessId> reporters{};
    std::string reason{};
  };
  struct Stall {
    std::map<ProcessId, Suspect> suspects{};
    std::optional<Time> judged_at{};
  };

  enum class Phase : std::uint8_t { none, running, broken };
  enum class Fault : std::uint8_t { none, own };  // does a loss count against its host?

  // server.cpp: connections and processes
  void on_stranger(Link link, const Message& message, Time now);
  void challenge(Link link, const Hello& hello);
  void greet(Link link, const Hello& hello, Time now);
  void refuse(Link link, const std::string& reason, Time now);
  void greet_process(Link link, const Hello& hello);
  void handle(Process& process, const Message& message, Time now);
  void on(Process& process, const Join& join, Time now);
  void on(Process& process, const Begun& begun);
  void on(Process& process, const Completed& completed, Time now);
  void on(Process& process, const Leave& leave, Time now);
  void lose(Process& process, const std::string& reason, Fault fault, Time now);
  void breach(Process& process, const std::string& what, Time now);
  void send(Link link, Message message);
  void close(Link link);
  void note(LogLevel level, std::string text);
  void note_refusal(const std::string& from, const std::string& reason, Time now);
  void settle(Time now);
  void sweep();
  [[nodiscard]] std::string name_of(const Process& process) const;
  [[nodiscard]] Process* find(ProcessId id);

  // server_admission.cpp
  [[nodiscard]] std::optional<Refusal> find_refusal(const Hello& hello) const;
  [[nodiscard]] std::optional<Refusal> find_refusal_of_agent(const Hello& agent) const;
  [[nodiscard]] std::string why_refused(const Hello& process) const;
  [[nodiscard]] bool takes_part(const Hello& agent) const;

  // server_stalls.cpp
  void on(Process& process, const FailureReport& report, Time now);
  void judge_stall(Time now);

  // server_generations.cpp
  void on(Process& process, const Contribution& part, Time now);
  void deliver(std::uint64_t sequence);
  void break_generation(const std::string& reason, const std::vector<std::int32_t>& ranks,
                        Time now);
  void meet(Time now);
  [[nodiscard]] bool first_generation_is_due(Time now);
  [[nodiscard]] Time start_deadline() const { return started_at_ + options_.start_timeout; }
  [[nodiscard]] bool only_misses_departed() const;
  [[nodiscard]] Time collective_timeout() const;
  [[nodiscard]] bool only_refuses_newcomers(const std::vector<std::int32_t>& ranks) const;
  void release_completed();
  [[nodiscard]] bool state_is_lost(const std::vector<Process*>& survivors) const;
  [[nodiscard]] bool all_have_come() const;
  struct Candidates {
    std::vector<Process*> survivors;  // by rank
    std::vector<Process*> newcomers;  // those with a rank first
  };
  [[nodiscard]] Candidates candidates();
  void dismiss_removed(Candidates& candidates, Time now);
  void publish(const Candidates& candidates);
  void give_up_if_hopeless(std::size_t candidates);
  void end_late(Time now);
  void announce_if_due(Time now);
  [[nodiscard]] std::optional<Time> announcement_time() const;
  [[nodiscard]] bool is_living_member(const Process& process) const;
  [[nodiscard]] bool can_do_without_removed() const;
  [[nodiscard]] bool is_removed(const Process& process) const;

  // server_agents.cpp
  void greet_agent(Link link, const Hello& hello, Time now);
  void handle_agent(Link link, const Message& message, Time now);
  void on_exit(Link link, const Exited& exited, Time now);
  void judge_exit(Process& process, Time now);
  void expire_exits(Time now);
  void finish_as(const Process& process);
  void remove_agent(Agent& agent, const std::string& reason);
  void lose_agent(Link link, const std::string& reason, Time now);
  void expire_leases(Time now);
  void start_processes(Time now);
  void start_first(Time now);
  void say_waiting(Time now);
  void start_more(Time now);
  void launch(Link link, Start& start, std::int32_t rank, std::int32_t size);
  void release_removed();
  [[nodiscard]] std::vector<Link> agents_in_order() const;
  void conclude();
  [[nodiscard]] int status_of_last_loss();
  void finish(int status, const std::string& reason);

  ServerOptions options_;
  std::function<std::uint64_t()> random_;
  std::vector<Action> actions_{};
  std::map<Link, Peer> peers_{};
  std::map<Link, Time> strangers_{};
  std::map<Link, Agent> agents_{};
  std::map<ProcessId, Process> processes_{};
  std::set<ProcessId> newcomers_{};    // that wait and were in no generation
  std::map<ProcessId, Time> exits_{};  // reported, while the connection is open: until when
  ProcessId last_process_ = 0;
  Cooldown cooldown_;
  Refusals refusals_{};
  std::set<ProcessId> put_off_{};          // agents that were told to try again
  std::map<std::string, int> machines_{};  // how many agents each had when the job began

  GenerationNumber number_ = 0;
  Phase phase_ = Phase::none;
  std::vector<ProcessId> roster_{};  // by rank
  std::map<std::uint64_t, Collective> collectives_{};
  std::optional<Time> meeting_since_{};  // the members leave the generation
  bool announced_ = false;               // to rank 0
  bool begun_ = false;                   // the generation's session has started
  bool has_lost_ = false;                // a member of the generation is lost
  Stall stall_{};
  int losses_ = 0;

  bool started_ = false;          // agents have been told to start processes
  Time started_at_{};             // then
  int started_size_ = max_ranks;  // so many
  bool said_waiting_ = false;
  std::uint64_t committed_ = 0;  // the newest commit that a member has had
  bool ending_ = false;          // a process has done its part, so nobody new is admitted
  bool was_member_ = false;      // a member has done its part
  bool completed_ = false;       // a member no longer needs the others
  ProcessId lost_last_ = 0;      // a member, and since then no other has done its part
  bool greeted_ = false;         // any process has
  bool any_lost_ = false;
  Finish first_loss_{};       // its status, if it has ended
  int late_status_ = 0;       // of a process that failed after it had done its part
  ProcessId first_lost_ = 0;  // of a job that is not elastic: its status is that of the job
  bool finished_ = false;
  bool dirty_ = false;  // processes or agents have gone since the last event
  Time last_time_{};
};

}  // namespace kolo::internal::rendezvous
