// SPDX-License-Identifier: Apache-2.0
// The server and its clients on TCP, with real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <future>
#include <thread>

#include "kolo/error.hpp"
#include "tcp_fixture.hpp"

namespace kolo::internal::rendezvous {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

TEST_F(TcpRendezvousTest, RanksExchangeInOneSessionAfterTheOther) {
  begin(4);
  for (int rank = 0; rank < 4; ++rank)
    fork_rank(rank, [rank](TcpRendezvous& rendezvous) {
      rendezvous.join();
      bool right = rendezvous.rank() == rank && exchange(rendezvous, 4);
      // The next one: rank 2 has the newest commit, and becomes rank 0.
      rendezvous.join(rank == 2 ? 6 : 5, true);
      right &= rendezvous.rank() == (rank == 2 ? 0 : rank < 2 ? rank + 1 : rank);
      right &= rendezvous.roster().members.front().commit == 6;
      right &= exchange(rendezvous, 4);
      rendezvous.leave();
      return right;
    });
  EXPECT_EQ(run().status, 0);
  EXPECT_THAT(statuses(), testing::Each(0));
}

// The kernel does not take the results as a whole.
TEST_F(TcpRendezvousTest, LongResultsArriveAsAWhole) {
  constexpr int np = 12;
  begin(np);
  for (int rank = 0; rank < np; ++rank)
    fork_rank(rank, [](TcpRendezvous& rendezvous) {
      rendezvous.join();
      const auto part_of = [](int owner) {
        return bytes_of(std::string(max_payload, static_cast<char>('a' + owner)));
      };
      const auto all = rendezvous.gather_all(part_of(rendezvous.rank()));
      bool right = all.size() == np;
      for (int other = 0; other < np; ++other)
        right &= std::ranges::equal(all.at(static_cast<std::size_t>(other)), part_of(other));
      rendezvous.leave();
      return right;
    });
  EXPECT_EQ(run().status, 0);
  EXPECT_THAT(statuses(), testing::Each(0));
}

/// The message of the loss that a call throws.
std::string loss_of(const std::function<void()>& call, const std::vector<int>& ranks) {
  try {
    call();
  } catch (const PeerLeft& error) {
    return error.ranks() == ranks ? error.what() : "other ranks";
  }
  return "nothing";
}

TEST_F(TcpRendezvousTest, AKilledRankEndsTheCallsOfTheOthers) {
  begin(3);
  for (int rank = 0; rank < 3; ++rank)
    fork_rank(rank, [rank](TcpRendezvous& rendezvous) {
      rendezvous.join();
      static_cast<void>(rendezvous.gather_all({}));
      if (rank == 2) ::kill(::getpid(), SIGKILL);
      const std::string loss = loss_of([&] { static_cast<void>(rendezvous.gather_all({})); }, {2});
      return loss.starts_with("rank 2 ") && rendezvous.interrupted();
    });
  const JobEnd end = run();
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.reason, HasSubstr("rank 2 (process " + std::to_string(ranks_[2])));
  EXPECT_EQ(statuses(), (std::vector<int>{0, 0, 137}));
}

TEST_F(TcpRendezvousTest, TheOthersLearnTheTextOfAnException) {
  begin(2);
  for (int rank = 0; rank < 2; ++rank)
    fork_rank(rank, [rank](TcpRendezvous& rendezvous) {
      rendezvous.join();
      if (rank == 0) {
        rendezvous.fail("the data set is empty");
        return true;
      }
      const std::string loss = loss_of([&] { static_cast<void>(rendezvous.gather_all({})); }, {0});
      return loss.find("the data set is empty") != std::string::npos;
    });
  EXPECT_EQ(run().status, 1);
  EXPECT_THAT(statuses(), testing::Each(0));
}

TEST_F(TcpRendezvousTest, AStoppedRankIsGivenUpOnceItIsReported) {
  begin(2);
  fork_rank(0, [](TcpRendezvous& rendezvous) {
    rendezvous.join();
    rendezvous.report_failure({1}, "it does nothing", false);
    return loss_of([&] { static_cast<void>(rendezvous.gather_all({})); }, {1})
               .find("it does nothing") != std::string::npos;
  });
  fork_rank(1, [](TcpRendezvous& rendezvous) {
    rendezvous.join();
    ::raise(SIGSTOP);
    // Continued, it is refused.
    try {
      static_cast<void>(rendezvous.gather_all({}));
    } catch (const BackendError&) {
      return true;
    }
    return false;
  });
  EXPECT_EQ(run().status, 1);
  ::kill(ranks_[1], SIGCONT);
  EXPECT_EQ(statuses(), (std::vector<int>{0, 0}));
}

// Their hellos are there before the server looks: none is thrown out for those behind it.
TEST_F(TcpRendezvousTest, ManyRanksComeAtOnce) {
  constexpr int np = 300;
  begin(np, 60s);
  std::vector<node::FileDescriptor> scans;
  for (int rank = 0; rank < np; ++rank) {
    fork_rank(rank, [](TcpRendezvous& rendezvous) {
      rendezvous.join();
      rendezvous.leave();
      return true;
    });
    scans.push_back(transport::connect_to(client_.server, 20s));
  }
  EXPECT_EQ(run().status, 0);
  EXPECT_THAT(statuses(), testing::Each(0));
}

// As kolorun does when a signal comes: the server still serves an earlier connection then, and both
// the call and the end of the rank wait for it.
TEST_F(TcpRendezvousTest, ACallComesBeforeWhatItsCallerDoesNext) {
  begin(1, 60s);
  const node::FileDescriptor stranger = transport::connect_to(client_.server, 20s);
  const pid_t rank = fork_rank(0, [&](TcpRendezvous& rendezvous) {
    rendezvous.join();
    static_cast<void>(::send(stranger.get(), "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL));
    return ::pause() == 0;
  });
  on_stranger_ = [&] {
    server_->call([](Server& server, Time now) { server.on_signal(SIGTERM, now); });
    ::kill(rank, SIGKILL);
    siginfo_t ended{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(rank), &ended, WEXITED | WNOWAIT), 0);
  };
  EXPECT_EQ(run().status, 128 + SIGTERM);
  EXPECT_EQ(statuses(), (std::vector<int>{128 + SIGKILL}));
}

/// Wakes another process.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : ends_) ::close(end);
  }
  [[nodiscard]] bool ring() const { return ::write(ends_[1], "", 1) == 1; }
  [[nodiscard]] bool wait() const {
    char byte = 0;
    return ::read(ends_[0], &byte, 1) == 1;
  }

 private:
  std::array<int, 2> ends_{};
};

// Rank 0 ends because of what rank 1 has said, and the server finds both at once.
TEST_F(TcpRendezvousTest, AMessageComesBeforeTheEndsThatItCauses) {
  begin(2, 60s);
  const node::FileDescriptor stranger = transport::connect_to(client_.server, 20s);
  const Pipe connected, server_is_busy, has_failed;
  const pid_t victim = fork_rank(0, [&](TcpRendezvous& rendezvous) {
    const bool right = connected.ring();
    rendezvous.join();
    return right && has_failed.wait();
  });
  // The server serves connections in the order in which they were made.
  before_connecting_ = [&] { EXPECT_TRUE(connected.wait()); };
  fork_rank(1, [&](TcpRendezvous& rendezvous) {
    rendezvous.join();
    const bool right = ::send(stranger.get(), "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL) == 16 &&
                       server_is_busy.wait();
    rendezvous.fail("thrown on purpose");
    return right && has_failed.ring();
  });
  on_stranger_ = [&] {
    EXPECT_TRUE(server_is_busy.ring());
    siginfo_t ended{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(victim), &ended, WEXITED | WNOWAIT), 0);
  };
  EXPECT_THAT(run().reason, MatchesRegex("rank 1 .*thrown on purpose"));
  EXPECT_THAT(statuses(), testing::Each(0));
}

TEST_F(TcpRendezvousTest, WithoutTheServerCallsThrow) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  begin(2);
  fork_rank(0, [](TcpRendezvous& rendezvous) {
    ::kill(::getppid(), SIGUSR1);
    try {
      rendezvous.join();  // the other one never comes
    } catch (const BackendError& error) {
      return std::string(error.what()).find("is gone") != std::string::npos;
    }
    return false;
  });
  std::thread stopper([&] {
    int signal = 0;
    ::sigwait(&signals, &signal);
    server_->stop();
  });
  EXPECT_EQ(run().status, 1);
  stopper.join();
  server_.reset();
  EXPECT_EQ(statuses(), (std::vector<int>{0}));
}

}  // namespace
}  // namespace kolo::internal::rendezvous
