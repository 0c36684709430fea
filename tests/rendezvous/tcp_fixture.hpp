// SPDX-License-Identifier: Apache-2.0
// A server in this process, and ranks in processes of their own, on TCP.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "job_secret.hpp"
#include "rendezvous/server/tcp_server.hpp"
#include "rendezvous/tcp_rendezvous.hpp"

namespace kolo::internal::rendezvous {

using namespace std::chrono_literals;

inline Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// A job whose processes come by themselves. They are forked before the server has its thread.
class TcpRendezvousTest : public testing::Test {
 protected:
  void begin(int np, Time hello_timeout = 300ms) {
    ServerOptions options{.secret = make_secret(), .version = "1", .np = np};
    options.has_agents = false;
    options.hello_timeout = hello_timeout;
    options.start_timeout = 60s;
    server_.emplace(options, transport::Endpoint{"127.0.0.1", 0},
                    [this](LogLevel, const std::string& text) {
                      {
                        const std::lock_guard lock(mutex_);
                        notes_ += text + '\n';
                      }
                      if (on_stranger_ && text.find("an invalid message") != std::string::npos)
                        on_stranger_();
                    });
    client_ = {.server = {"127.0.0.1", server_->port()},
               .secret = make_secret(),
               .version = "1",
               .connect_timeout = 20s,
               .call_timeout = 60s};
  }

  /// The process ends with status 0 if `program` returns true.
  pid_t fork_rank(int rank, const std::function<bool(TcpRendezvous&)>& program) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      ranks_.push_back(pid);
      return pid;
    }
    int status = 1;
    try {
      if (before_connecting_) before_connecting_();
      ClientOptions options = client_;
      options.wanted_rank = rank;
      TcpRendezvous rendezvous(options);
      status = program(rendezvous) ? 0 : 2;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    }
    ::_exit(status);
  }

  JobEnd run() { return server_->run(); }

  std::vector<int> statuses() {
    std::vector<int> statuses;
    for (const pid_t pid : ranks_) {
      int how = 0;
      EXPECT_EQ(::waitpid(pid, &how, 0), pid);
      statuses.push_back(WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how));
    }
    return statuses;
  }

  std::optional<TcpServer> server_;
  ClientOptions client_{};
  std::vector<pid_t> ranks_{};
  std::mutex mutex_;
  std::string notes_{};
  std::function<void()> on_stranger_{};        // once its message is found invalid
  std::function<void()> before_connecting_{};  // in the processes forked from now on
};

/// Makes the calls with which a session starts.
inline bool exchange(TcpRendezvous& rendezvous, int size) {
  const int rank = rendezvous.rank();
  bool right = rendezvous.size() == size;
  const auto all =
      rendezvous.gather_all(bytes_of(std::string(static_cast<std::size_t>(rank), 'x')));
  for (int other = 0; other < size; ++other)
    right &= all.at(static_cast<std::size_t>(other)).size() == static_cast<std::size_t>(other);
  right &= rendezvous.ranks_of_machine().size() == static_cast<std::size_t>(size);
  rendezvous.check();
  return right && !rendezvous.interrupted();
}

}  // namespace kolo::internal::rendezvous
