// SPDX-License-Identifier: Apache-2.0
#include "node/doorbell.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace kolo::internal::node {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// Nothing here takes so long: who sleeps until then was not woken.
constexpr std::chrono::nanoseconds too_long = 30s;

class DoorbellTest : public testing::Test {
 protected:
  /// Whether a sleep would end at once.
  [[nodiscard]] bool woken(Listener who) const {
    pollfd fd{.fd = bell_.event_fds()[who == Listener::thread ? 0 : 1].get(),
              .events = POLLIN,
              .revents = 0};
    return ::poll(&fd, 1, 0) == 1;
  }
  /// Sleeps, and whether it was woken.
  [[nodiscard]] bool sleep(Listener who) const {
    const auto since = steady_clock::now();
    bell_.sleep(who, too_long);
    return steady_clock::now() - since < too_long;
  }

  BellWord word_{};
  Doorbell bell_{word_, Doorbell::open()};
};

constexpr std::array listeners{Listener::thread, Listener::waiter};

TEST_F(DoorbellTest, IsNotHeardByNobody) {
  bell_.ring();
  bell_.ring(WakeReason::data);
  for (const Listener who : listeners) EXPECT_FALSE(woken(who));
}

TEST_F(DoorbellTest, ARingBeforeListeningIsNotHeard) {
  bell_.ring();
  bell_.listen(Listener::thread, WakeReason::data);
  EXPECT_FALSE(woken(Listener::thread));
}

TEST_F(DoorbellTest, WakesWhoListensAndNobodyElse) {
  for (const Listener who : listeners) {
    const Listener other = who == Listener::thread ? Listener::waiter : Listener::thread;
    bell_.listen(who, WakeReason::messages);
    bell_.ring();
    EXPECT_FALSE(woken(other));
    ASSERT_TRUE(woken(who));
    EXPECT_TRUE(sleep(who));
    EXPECT_FALSE(woken(who));
  }
}

TEST_F(DoorbellTest, WakesOnce) {
  bell_.listen(Listener::waiter, WakeReason::data);
  bell_.ring();
  EXPECT_TRUE(sleep(Listener::waiter));
  bell_.ring();
  bell_.ring(WakeReason::data);
  EXPECT_FALSE(woken(Listener::waiter));
}

TEST_F(DoorbellTest, IsSilentOnceNobodyListensAnyMore) {
  bell_.listen(Listener::thread, WakeReason::data);
  bell_.stop_listening();
  bell_.ring();
  EXPECT_FALSE(woken(Listener::thread));
}

TEST_F(DoorbellTest, OfDataIsHeardOnlyByWhoWantsToHearIt) {
  bell_.listen(Listener::waiter, WakeReason::messages);
  bell_.ring(WakeReason::data);
  EXPECT_FALSE(woken(Listener::waiter));
  bell_.ring(WakeReason::messages);  // still listens
  EXPECT_TRUE(sleep(Listener::waiter));
  for (const WakeReason about : {WakeReason::data, WakeReason::messages}) {
    bell_.listen(Listener::waiter, WakeReason::data);
    bell_.ring(about);
    EXPECT_TRUE(sleep(Listener::waiter));
  }
}

TEST_F(DoorbellTest, AWakeEndsTheNextSleep) {
  for (const Listener who : listeners) {
    bell_.wake(who);
    bell_.wake(who);
    EXPECT_TRUE(sleep(who));
    EXPECT_FALSE(woken(who));  // both were for one sleep
  }
}

TEST_F(DoorbellTest, ASleepEndsInTime) {
  for (const std::chrono::nanoseconds most : {-1ns, 0ns, 1ns, 2'000'000ns}) {
    const auto since = steady_clock::now();
    bell_.sleep(Listener::thread, most);
    EXPECT_GE(steady_clock::now() - since, most);
  }
}

/// Passes a number to and fro through a word, sleeping until it changes.
class Turns {
 public:
  void wait_for(int turn, const Doorbell& bell, Listener who, WakeReason about) {
    while (turn_.load(std::memory_order_acquire) != turn) {
      bell.listen(who, about);
      if (turn_.load(std::memory_order_acquire) != turn) {
        const auto since = steady_clock::now();
        bell.sleep(who, too_long);
        if (steady_clock::now() - since >= too_long) lost_ = true;
        if (lost_) return;
      }
      bell.stop_listening();
    }
  }
  void set(int turn) { turn_.store(turn, std::memory_order_release); }
  /// Somebody slept for too long: nobody waits any more.
  [[nodiscard]] bool lost() const { return lost_; }

 private:
  std::atomic<int> turn_{0};
  std::atomic<bool> lost_{false};
};

TEST(DoorbellOfThreads, LosesNoWake) {
  constexpr int rounds = 20'000;
  std::array<BellWord, 2> words{};
  const Doorbell ping(words[0], Doorbell::open());
  const Doorbell pong(words[1], Doorbell::open());
  Turns turns;
  std::thread other([&] {
    for (int round = 0; round < rounds && !turns.lost(); ++round) {
      turns.wait_for(2 * round + 1, pong, Listener::thread, WakeReason::data);
      turns.set(2 * round + 2);
      ping.ring();
    }
  });
  for (int round = 0; round < rounds && !turns.lost(); ++round) {
    turns.set(2 * round + 1);
    pong.ring(WakeReason::data);
    turns.wait_for(2 * round + 2, ping, Listener::waiter, WakeReason::messages);
  }
  other.join();
  EXPECT_FALSE(turns.lost()) << "a lost wake";
}

TEST(DoorbellOfThreads, ARingWhileOneBeginsToListenIsSeenOrHeard) {
  // Both begin at once, one of them ever a little later, so that the word and the flag are
  // written and read in any order.
  constexpr int rounds = 5000;
  BellWord word{};
  const Doorbell bell(word, Doorbell::open());
  std::atomic<int> begun{0};
  std::atomic<int> flag{0};
  std::atomic<int> ended{0};
  const auto wait_for = [](const std::atomic<int>& counter, int round) {
    while (counter.load(std::memory_order_acquire) < round) std::this_thread::yield();
  };
  std::thread ringer([&] {
    for (int round = 1; round <= rounds; ++round) {
      wait_for(begun, round);
      flag.store(round, std::memory_order_release);
      bell.ring();
      ended.store(round, std::memory_order_release);
    }
  });
  bool lost = false;
  for (int round = 1; round <= rounds && !lost; ++round) {
    begun.store(round, std::memory_order_release);
    for (int i = 0; i < round % 300; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    bell.listen(Listener::waiter, WakeReason::messages);
    while (!lost && flag.load(std::memory_order_acquire) < round) {
      const auto since = steady_clock::now();
      bell.sleep(Listener::waiter, too_long);
      lost = steady_clock::now() - since >= too_long;
      bell.listen(Listener::waiter, WakeReason::messages);
    }
    bell.stop_listening();
    wait_for(ended, round);
  }
  begun.store(rounds, std::memory_order_release);
  ringer.join();
  EXPECT_FALSE(lost) << "a lost wake";
}

TEST(DoorbellOfThreads, ManyMayRing) {
  constexpr int ringers = 3;
  constexpr int rounds = 5000;
  BellWord word{};
  const Doorbell bell(word, Doorbell::open());
  std::atomic<int> rung{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < ringers; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) {
        rung.fetch_add(1, std::memory_order_release);
        bell.ring();
      }
    });
  for (int seen = 0; seen < ringers * rounds;) {
    bell.listen(Listener::waiter, WakeReason::messages);
    const int now = rung.load(std::memory_order_acquire);
    if (now == seen) {
      const auto since = steady_clock::now();
      bell.sleep(Listener::waiter, too_long);
      if (steady_clock::now() - since >= too_long) {
        ADD_FAILURE() << "a lost wake";
        break;
      }
    }
    seen = now;
    bell.stop_listening();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kolo::internal::node
