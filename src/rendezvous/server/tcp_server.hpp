// SPDX-License-Identifier: Apache-2.0
// Runs the rendezvous server over TCP.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"
#include "node/not_inherited.hpp"
#include "rendezvous/message_stream.hpp"
#include "rendezvous/server/server.hpp"
#include "transport/socket_user.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::rendezvous {

/// The end of a job: its exit status, and the reason if it has failed.
struct JobEnd {
  int status = 0;
  std::string reason{};
  bool restarts = false;     // the job is to start again
  std::string last_lines{};  // what the process that has failed first wrote to standard error
  std::string waits{};       // what the other ranks waited for, in words
};

/// One thread constructs and runs the server. Any thread may call `stop`, `port`, `call` and
/// `ended`.
class TcpServer {
 public:
  /// Begins to listen. `write_note` receives messages for the log, `change_agents` the connected
  /// agents, and `on_rule` is called once a standby rules; the thread in `run` calls all of them.
  /// Throws BackendError.
  TcpServer(const ServerOptions& options, const transport::Endpoint& at,
            std::function<void(LogLevel, const std::string&)> write_note,
            std::function<void(const AgentsChanged&)> change_agents = {},
            std::function<void()> on_rule = {});

  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Serves until `stop`, or until the job is over and all participants have disconnected or had
  /// time to do so.
  JobEnd run();
  void stop();
  /// Makes the thread in `run` call `what` soon. Does nothing once `run` has returned.
  void call(std::function<void(Server&, Time)> what);
  /// True if the job is over. Agents may still be ending processes.
  [[nodiscard]] bool ended() const { return ended_; }
  /// True if processes were running when the job ended.
  [[nodiscard]] bool ended_with_processes() const { return has_processes_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Client {
    MessageStream connection;
    bool welcome = false;
    bool closing = false;  // messages that arrive from now on are dropped
    bool ended = false;    // the other side has closed it, or it has failed
    Time until{};          // when the socket of a closing connection is closed
    bool is_full = false;  // the epoll descriptor watches for room
  };

  /// The time since the start, without the time for which this process was stopped: other processes
  /// must not count as silent because this one could not hear them.
  [[nodiscard]] Time now();
  /// Waits, and finds the clients that have something to say or room for more.
  void wait();
  [[nodiscard]] bool take_calls();
  /// Makes the calls of other threads. They come before messages that were received later, so that
  /// the server sees the end of a job before the exits of processes that its caller has ended.
  void make_calls();
  void accept_all();
  /// Returns false if the process cannot have more connections.
  [[nodiscard]] bool accept_from(int listener);
  void serve(Link link);
  void end(Link link);
  void carry_out();
  /// Makes the epoll descriptor watch for room while the connection has unsent messages. A
  /// connection that Kolo has closed is served in the next pass.
  void watch(Link link, Client& client);
  void watch_listeners();
  void erase(std::map<Link, Client>::iterator client);
  void drop_closed();
  [[nodiscard]] int milliseconds_to_wait();

  Clock::time_point begin_ = Clock::now();
  Clock::time_point looked_ = begin_;  // when `now` last read the clock
  Time stopped_for_{};                 // the time for which this process or its host was stopped
  Time silence_;
  Time end_timeout_;
  // The most closing connections of strangers. Beyond it, the oldest are closed at once, so that
  // strangers cannot exhaust the descriptors, which may be those of rank 0.
  std::ptrdiff_t max_leaving_;
  Server server_;
  std::function<void(LogLevel, const std::string&)> write_note_;
  std::function<void(const AgentsChanged&)> change_agents_;
  std::function<void()> on_rule_;
  std::vector<node::FileDescriptor> listeners_;
  std::vector<node::NotInherited> not_inherited_{};  // the listeners, in forked children
  std::uint16_t port_;
  transport::SocketUsers users_{};
  bool has_secret_;
  node::FileDescriptor wake_;    // readable if there are calls, or the server is to stop
  node::FileDescriptor events_;  // an epoll descriptor of `wake_`, the listeners and the clients
  std::mutex mutex_{};
  // Guarded by the mutex:
  bool stopped_ = false;
  std::vector<std::function<void(Server&, Time)>> calls_{};
  // Used only by the thread in `run`:
  Link last_link_ = 0;
  std::map<Link, Client> clients_{};
  std::vector<Link> ready_{};        // the clients to serve in this pass
  std::vector<Link> due_{};          // those to serve in the next pass, whatever happens
  std::vector<Link> closing_{};      // oldest first
  std::vector<Link> ended_links_{};  // those that end in the next pass, after its messages
  std::optional<JobEnd> end_{};
  std::atomic<bool> has_processes_ = false;
  std::atomic<bool> ended_ = false;
  Time end_at_{};
  bool accepts_ = true;
  bool watches_listeners_ = true;
  bool said_full_ = false;
  bool said_unknown_ = false;
};

}  // namespace kolo::internal::rendezvous
