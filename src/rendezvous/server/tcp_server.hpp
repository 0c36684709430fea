// SPDX-License-Identifier: Apache-2.0
// The rendezvous server on TCP.
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
#include "transport/sockets.hpp"

namespace kolo::internal::rendezvous {

/// How a job has ended.
struct JobEnd {
  int status = 0;
  std::string reason{};
};

/// One thread makes and runs it; `stop`, `port`, `call` and `ended` are for any thread.
class TcpServer {
 public:
  /// Listens from now on. `write_note` gets what people should know. Throws BackendError.
  TcpServer(const ServerOptions& options, const transport::Endpoint& at,
            std::function<void(LogLevel, const std::string&)> write_note);

  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Until the job is over and all have been told, or `stop`.
  JobEnd run();
  void stop();
  /// Has that thread do this soon, if it still runs.
  void call(std::function<void(Server&, Time)> what);
  /// The job is over, but agents may still end processes.
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Client {
    MessageStream connection;
    bool welcome = false;
    bool closing = false;  // once what was sent has left, or `until`
    Time until{};
  };

  /// Stands still while this process is stopped: it does not hear the others then, which is no
  /// fault of theirs.
  [[nodiscard]] Time now();
  void wait();
  [[nodiscard]] bool take_calls();
  /// Whoever ends a job and then its processes does it in this order for the server too: calls come
  /// before what has been received since.
  void make_calls();
  void accept_all();
  void serve(Link link);
  void carry_out();
  void drop_closed();
  [[nodiscard]] int milliseconds_to_wait();

  Clock::time_point begin_ = Clock::now();
  Clock::time_point looked_ = begin_;  // at the clock, by `now`
  Time stopped_for_{};                 // this process, by a signal or with its host
  Time silence_;
  Server server_;
  std::function<void(LogLevel, const std::string&)> write_note_;
  node::FileDescriptor listener_;
  node::NotInherited not_inherited_{listener_.get()};
  std::uint16_t port_;
  node::FileDescriptor wake_;  // readable if there are calls, or it is to stop
  std::mutex mutex_{};
  // Guarded by the mutex:
  bool stopped_ = false;
  std::vector<std::function<void(Server&, Time)>> calls_{};
  // By one thread:
  Link last_link_ = 0;
  std::map<Link, Client> clients_{};
  std::optional<JobEnd> end_{};
  std::atomic<bool> ended_ = false;
  Time end_at_{};
  bool accepts_ = true;
  bool said_full_ = false;
};

}  // namespace kolo::internal::rendezvous
