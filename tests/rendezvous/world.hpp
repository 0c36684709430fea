// SPDX-License-Identifier: Apache-2.0
// The real rendezvous server, with simulated hosts, agents, processes and network.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "judge.hpp"
#include "plan.hpp"
#include "rendezvous/server/server.hpp"

namespace kolo::internal::rendezvous {

/// Time is virtual, and there is one thread, so a seed always gives the same run.
class World {
 public:
  explicit World(const Plan& plan);

  /// Runs until no event is left. Throws Violation.
  void run();

  [[nodiscard]] const Judge& judge() const { return judge_; }
  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }

 private:
  using SharedMessage = std::shared_ptr<const Message>;

  enum class Stage : std::uint8_t { starting, joining, starting_session, training, done };

  struct Proc {
    ProcessId id = 0;  // as the server knows it
    std::size_t host = 0;
    Link link = 0;
    Stage stage = Stage::starting;
    GenerationNumber generation = 0;
    std::int32_t rank = -1;
    SharedMessage roster{};
    std::uint64_t commit = 0;
    bool announced = false;  // rank 0 knows of a change
    bool stopped = false;
    bool hangs = false;
    bool at_fault = false;
    bool rejoins = false;  // has tried to rejoin
    bool ended = false;
    std::vector<SharedMessage> inbox{};          // messages received while it is stopped
    std::vector<std::function<void()>> later{};  // actions postponed while it is stopped
  };

  struct Agent {
    std::string host{};
    int slots = 0;
    Link link = 0;
    bool welcome = false;
    bool of_other_job = false;
    bool from_start = false;  // welcomed before the first session
    Time refused_until{};     // time of the next attempt
    bool alive = true;
    bool to_go = false;
    Time heard{};
    Time cut_until{};
  };

  struct Channel {
    enum class Owner : std::uint8_t { stranger, agent, process } owner = Owner::stranger;
    std::size_t index = 0;  // index of the agent or of the process
    std::size_t host = 0;
    bool welcome = false;
    bool client_open = true;
    bool server_open = true;
    std::optional<transport::Handshake> handshake{};
    Hello hello{};
    Time last_up{};
    Time last_down{};
  };

  /// All members must arrive before any of them commits.
  struct Agreement {
    std::set<std::size_t> arrived{};
    bool change = false;
    bool passed = false;
  };

  // world.cpp: time, network, server
  void at(Time when, std::function<void()> what);
  [[nodiscard]] Time any(Time most);
  [[nodiscard]] std::uint64_t random() { return random_(); }
  Link open(Channel::Owner owner, std::size_t index, std::size_t host);
  void send_up(Link link, const Message& message);
  void close_up(Link link);
  void arrive_at_server(Link link, const Message& message);
  void drain();
  void do_send(const Send& send);
  void do_close(Link link);
  /// Begins a handshake, which `hello` follows.
  void introduce(Link link, const Hello& hello);
  void on_step(Link link, const HandshakeStep& step);
  void judge_send(Channel& channel, const Message& message);
  void schedule_tick();
  [[nodiscard]] Time deliverable(std::size_t host) const;
  [[nodiscard]] Hello hello() const;

  // world_hosts.cpp: agents and faults
  void start_agent(std::size_t index);
  void greet_as_agent(std::size_t index);
  void on_refusal(std::size_t index, const Refusal& refusal);
  void require_no_twin(std::size_t index);
  void keep_alive(std::size_t index);
  void to_agent(std::size_t index, const Message& message);
  void end_agent(std::size_t index, int status);
  void inject(const Fault& fault);
  void inject_into_process(const Fault& fault);
  void inject_into_host(const Fault& fault);
  void end_useless_later(std::size_t index);
  void blame(std::size_t process);
  void blame_host(std::size_t index);
  void stranger(const Fault& fault);
  [[nodiscard]] std::vector<std::size_t> living() const;

  // world_processes.cpp
  void start_process(std::size_t host, ProcessId id, int wanted_rank);
  void to_process(std::size_t index, const SharedMessage& message);
  void on_roster(std::size_t index, const SharedMessage& message);
  void call(std::size_t index, GenerationNumber generation, std::uint64_t sequence);
  void on_result(std::size_t index, const Result& result);
  void on_interruption(std::size_t index, const Interruption& interruption);
  void arrive(std::size_t index);
  void pass_if_complete(GenerationNumber generation, std::uint64_t next);
  void agreed(std::size_t index, GenerationNumber generation, std::uint64_t next, bool change);
  void report_failure(GenerationNumber generation, std::uint64_t next);
  void meet(std::size_t index, bool orderly);
  void wake(std::size_t index);
  void end_process(std::size_t index, int status);
  void closed_out(std::size_t index);
  [[nodiscard]] std::size_t index_of(ProcessId id) const;

  struct Event {
    Time when;
    std::uint64_t order;
    std::function<void()> what;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };

  Plan plan_;
  std::mt19937_64 random_;
  Server server_;
  Judge judge_;
  std::priority_queue<Event, std::vector<Event>, Later> queue_{};
  std::uint64_t order_ = 0;
  std::uint64_t events_ = 0;
  Time now_{};
  std::optional<Time> tick_{};
  Link last_link_ = 0;
  std::map<Link, Channel> channels_{};
  std::vector<Agent> agents_{};
  std::vector<Proc> processes_{};
  std::map<ProcessId, std::size_t> by_id_{};
  std::map<std::pair<GenerationNumber, std::uint64_t>, Agreement> agreements_{};
  ProcessId last_id_ = 0;
  bool faults_ = false;
  int done_ = 0;
};

}  // namespace kolo::internal::rendezvous
