// SPDX-License-Identifier: Apache-2.0
// The rendezvous server inside kolorun.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "node/file_descriptor.hpp"
#include "options.hpp"
#include "rendezvous/server/tcp_server.hpp"

namespace kolorun {

/// Runs the server in a thread of its own.
class Serving {
 public:
  /// Throws BackendError.
  Serving(const Options& options, const transport::Endpoint& at);
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;
  ~Serving();

  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  void pass_signal(int number);
  void remove_host(const std::string& name, const std::string& reason);
  void keep_host(const std::string& name);
  void end(int status, const std::string& reason);
  /// Ends the job because this host is lost.
  void end_by_host(const std::string& host, int status, const std::string& reason);
  /// Stops waiting for agents.
  void stop() { server_.stop(); }

  /// True if the job is over, even if agents still have processes to end.
  [[nodiscard]] bool ended() const { return server_.ended(); }
  /// True if processes were running then.
  [[nodiscard]] bool ended_with_processes() const { return server_.ended_with_processes(); }
  /// Readable once `wait` would not block.
  [[nodiscard]] int descriptor() const { return done_.get(); }
  /// The connected agents, and how many slots the job lacks. `agents_descriptor` is readable once
  /// that has changed since the last call.
  [[nodiscard]] rendezvous::AgentsChanged agents();
  [[nodiscard]] int agents_descriptor() const { return agents_event_.get(); }
  /// True once this server, a standby, rules. `ruling_descriptor` is readable from then on.
  [[nodiscard]] bool rules() const { return rules_; }
  [[nodiscard]] int ruling_descriptor() const { return ruling_.get(); }
  /// Waits until the agents have ended all processes, or do not respond.
  rendezvous::JobEnd wait();

 private:
  std::mutex mutex_{};
  rendezvous::AgentsChanged agents_;  // guarded by the mutex
  node::FileDescriptor agents_event_;
  std::atomic<bool> rules_ = false;
  node::FileDescriptor ruling_;
  rendezvous::TcpServer server_;
  rendezvous::JobEnd end_{};
  node::FileDescriptor done_;
  std::thread thread_;
};

}  // namespace kolorun
