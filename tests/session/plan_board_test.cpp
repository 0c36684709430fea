// SPDX-License-Identifier: Apache-2.0
// Whom the board of a plan wakes: nobody in vain, and nobody too late.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <random>
#include <thread>
#include <vector>

#include "engine_ranks.hpp"
#include "negotiation/replay/board.hpp"
#include "session/engine/shared_board.hpp"
#include "thread_links.hpp"

namespace kolo::internal::session {
namespace {

using negotiation::PlanBoard;
using negotiation::to_word;
using node::Listener;
using node::WakeReason;

std::uint64_t at(std::uint64_t position) { return to_word({1, position, false}); }

/// The ranks of a board. All of them listen for data, and none sleeps.
class Listeners {
 public:
  explicit Listeners(int ranks) : words_(static_cast<std::size_t>(ranks)), places_(words_.size()) {
    for (std::size_t i = 0; i < words_.size(); ++i)
      bells_.emplace_back(words_[i], node::Doorbell::open());
    std::vector<SharedPlanBoard::Peer> peers;
    for (std::size_t i = 0; i < words_.size(); ++i) peers.push_back({&places_[i], &bells_[i]});
    for (int rank = 0; rank < ranks; ++rank) boards_.emplace_back(peers, rank);
    listen(WakeReason::data);
  }

  [[nodiscard]] SharedPlanBoard& board(int rank) { return boards_[static_cast<std::size_t>(rank)]; }
  void listen(WakeReason about) {
    for (const node::Doorbell& bell : bells_) bell.listen(Listener::waiter, about);
  }
  /// The number of ranks that were rung since they began to listen.
  [[nodiscard]] int rung() const {
    int rung = 0;
    for (const node::BellWord& word : words_) rung += word.listener == 0 ? 1 : 0;
    return rung;
  }

 private:
  std::vector<node::BellWord> words_;
  std::vector<SharedPlanBoard::Word> places_;
  std::vector<node::Doorbell> bells_{};
  std::vector<SharedPlanBoard> boards_{};
};

TEST(PlanBoard, OnlyTheLastRankThatPassesAPositionRings) {
  for (const int ranks : {2, 4, 8, 16, 32}) {
    Listeners all(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      all.board(rank).publish(at(1), PlanBoard::Urgency::progress);
      EXPECT_EQ(all.rung(), 0) << "the data of the batch is not in place yet";
      all.board(rank).wake();
      EXPECT_EQ(all.rung(), rank == ranks - 1 ? ranks - 1 : 0) << rank << " of " << ranks;
    }
    all.listen(WakeReason::data);
    all.board(ranks - 1).wake();
    EXPECT_EQ(all.rung(), 0) << "it has rung already";
  }
}

TEST(PlanBoard, ARankThatIsAheadRingsNobody) {
  Listeners all(3);
  for (const int rank : {0, 1, 2, 0}) {
    all.board(rank).publish(at(rank == 0 ? 2 : 1), PlanBoard::Urgency::progress);
    all.board(rank).wake();
  }
  EXPECT_EQ(all.rung(), 2);
  all.listen(WakeReason::data);
  all.board(0).publish(at(3), PlanBoard::Urgency::progress);
  all.board(0).wake();
  EXPECT_EQ(all.rung(), 0) << "the others are still before the position at which it was";
  // The last one passes several positions at once; the others are at the second of them.
  all.board(1).publish(at(3), PlanBoard::Urgency::progress);
  all.board(1).wake();
  EXPECT_EQ(all.rung(), 0);
  all.board(2).publish(at(5), PlanBoard::Urgency::progress);
  all.board(2).wake();
  EXPECT_EQ(all.rung(), 2);
}

TEST(PlanBoard, AStopWakesAllAtOnce) {
  Listeners all(4);
  all.listen(WakeReason::messages);
  all.board(2).publish(to_word({1, 0, true}), PlanBoard::Urgency::stop);
  EXPECT_EQ(all.rung(), 3);
}

/// Passes positions together with the others, some at once, and sleeps in between as a driver does.
void pass_positions(SharedPlanBoard& board, const node::Doorbell& bell, int ranks, int rank) {
  constexpr std::chrono::seconds too_long{30};
  constexpr std::uint64_t last = 2000;
  std::mt19937 random(static_cast<unsigned>(rank));
  const auto all_have_passed = [&](std::uint64_t position) {
    for (int other = 0; other < ranks; ++other)
      if (board.read(other) < at(position)) return false;
    return true;
  };
  for (std::uint64_t ran = 0, position = 0; ran < last;) {
    for (auto left = random() % 8; left > 0; --left) std::this_thread::yield();
    if (position - ran < 3 && position < last) {
      position = std::min(position + 1 + random() % 2, last);
      board.publish(at(position), PlanBoard::Urgency::progress);
      board.wake();
    }
    bell.listen(Listener::waiter, WakeReason::data);
    if (!all_have_passed(ran + 1)) {
      const auto since = std::chrono::steady_clock::now();
      bell.sleep(Listener::waiter, too_long);
      if (std::chrono::steady_clock::now() - since >= too_long) {
        ADD_FAILURE() << "nobody woke rank " << rank << " before position " << ran + 1;
        return;
      }
    }
    bell.stop_listening();
    while (ran < position && all_have_passed(ran + 1)) ++ran;
  }
}

TEST(PlanBoard, NoWakeUpIsLost) {
  for (const int ranks : {2, 3, 5}) {
    test::ThreadWorld world(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        SharedPlanBoard board = world.make_board(rank);
        pass_positions(board, world.bell(rank), ranks, rank);
      });
    for (std::thread& thread : threads) thread.join();
  }
}

/// Every rank begins a step once the rank before it sleeps in its own.
TEST(PlanBoard, RanksThatArriveOneByOneWakeAFewTimesEach) {
  constexpr int ranks = 16;
  constexpr int steps = 30;
  constexpr int warm_up = 10;
  std::vector<std::atomic<int>> waiting(ranks);
  std::atomic<std::uint64_t> wakes{0};
  test::Ranks all(ranks);
  std::latch warm(ranks);
  all.run([&](Engine& engine) {
    const int rank = engine.topology().rank;
    std::vector<double> tensor(1, 1.0);
    const auto step = [&](int number) {
      while (rank > 0 && (waiting[static_cast<std::size_t>(rank - 1)] < number ||
                          !all.world().is_asleep(rank - 1)))
        std::this_thread::yield();
      tensor.front() = 1.0;
      const test::OperationPtr operation = test::submit_sum(engine, "sum", tensor, true);
      waiting[static_cast<std::size_t>(rank)] = number;
      test::wait(engine, operation);
      EXPECT_EQ(tensor.front(), ranks);
    };
    for (int i = 1; i <= warm_up; ++i) step(i);
    warm.arrive_and_wait();
    const std::uint64_t before = engine.statistics().wakes;
    for (int i = warm_up + 1; i <= warm_up + steps; ++i) step(i);
    wakes += engine.statistics().wakes - before;
  });
  EXPECT_LE(wakes, 3U * ranks * steps);
}

}  // namespace
}  // namespace kolo::internal::session
