// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/background_loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <initializer_list>
#include <latch>
#include <limits>
#include <memory>
#include <semaphore>
#include <set>
#include <stdexcept>
#include <string>

namespace kolo::internal {
namespace {

using testing::HasSubstr;

TEST(BackgroundLoader, GivesItemsInOrderWhoeverMakesThem) {
  for (const int threads : {0, 1, 2, 5}) {
    for (const std::size_t capacity : std::initializer_list<std::size_t>{
             0, 1, 3, 500, std::numeric_limits<std::size_t>::max()}) {
      BackgroundLoader<std::int64_t> loader(200, [](std::int64_t number) { return 3 * number; },
                                            {.threads = threads, .capacity = capacity});
      for (std::int64_t number = 0; number < 200; ++number) {
        ASSERT_EQ(loader.next(), 3 * number) << threads << " threads, capacity " << capacity;
      }
      EXPECT_FALSE(loader.next().has_value());
      EXPECT_FALSE(loader.next().has_value());
    }
  }
}

TEST(BackgroundLoader, OfNothingIsAtItsEnd) {
  BackgroundLoader<int> loader(0, [](std::int64_t) -> int { throw std::logic_error("asked"); });
  EXPECT_FALSE(loader.next().has_value());
}

TEST(BackgroundLoader, MakesEachItemOnce) {
  std::mutex mutex;
  std::multiset<std::int64_t> made;
  BackgroundLoader<int> loader(100,
                               [&](std::int64_t number) {
                                 const std::lock_guard lock(mutex);
                                 made.insert(number);
                                 return 0;
                               },
                               {.threads = 4});
  while (loader.next()) {
  }
  const std::lock_guard lock(mutex);
  EXPECT_EQ(made.size(), 100U);
  EXPECT_EQ(std::set<std::int64_t>(made.begin(), made.end()).size(), 100U);
}

TEST(BackgroundLoader, GoesAheadUpToItsCapacity) {
  constexpr int capacity = 3;
  std::counting_semaphore<> made(0);
  std::atomic<std::int64_t> taken = 0;
  std::atomic<bool> too_far = false;
  BackgroundLoader<int> loader(50,
                               [&](std::int64_t number) {
                                 if (number >= taken + capacity) too_far = true;
                                 made.release();
                                 return 0;
                               },
                               {.threads = 2, .capacity = capacity});
  for (int i = 0; i < capacity; ++i) made.acquire();  // made before anything is taken
  for (int i = 0; i < 50; ++i) {
    ++taken;
    ASSERT_TRUE(loader.next().has_value());
  }
  EXPECT_FALSE(too_far);
}

TEST(BackgroundLoader, SeveralItemsAreMadeAtOnce) {
  // No call continues before all three have begun.
  std::latch together(3);
  BackgroundLoader<std::int64_t> loader(3,
                                        [&](std::int64_t number) {
                                          together.arrive_and_wait();
                                          return number;
                                        },
                                        {.threads = 3});
  EXPECT_EQ(loader.next(), 0);
  EXPECT_EQ(loader.next(), 1);
  EXPECT_EQ(loader.next(), 2);
}

TEST(BackgroundLoader, ThrowsWhatAnItemThrewWhenItsTurnComes) {
  for (const int threads : {0, 1, 3}) {
    BackgroundLoader<std::int64_t> loader(
        6,
        [](std::int64_t number) {
          if (number % 2 == 1) throw std::runtime_error("item " + std::to_string(number));
          return number;
        },
        {.threads = threads});
    for (std::int64_t number = 0; number < 6; ++number) {
      if (number % 2 == 0) {
        EXPECT_EQ(loader.next(), number);
        continue;
      }
      try {
        (void)loader.next();
        ADD_FAILURE() << "no exception";
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "item " + std::to_string(number));
      }
    }
    EXPECT_FALSE(loader.next().has_value());
  }
}

TEST(BackgroundLoader, MayEndWithItemsUntaken) {
  std::atomic<int> alive = 0;
  struct Counted {
    explicit Counted(std::atomic<int>& counter) : count(&counter) { ++*count; }
    Counted(Counted&& other) noexcept : count(std::exchange(other.count, nullptr)) {}
    ~Counted() {
      if (count != nullptr) --*count;
    }
    std::atomic<int>* count;
  };
  for (int taken = 0; taken < 5; ++taken) {
    BackgroundLoader<Counted> loader(1000, [&](std::int64_t) { return Counted(alive); },
                                     {.threads = 3, .capacity = 8});
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next().has_value());
  }
  EXPECT_EQ(alive, 0);
}

TEST(BackgroundLoader, TheEndWaitsForWhatHasBegun) {
  std::latch begun(1), go_on(1);
  std::atomic<int> calls = 0, returns = 0;
  auto loader = std::make_unique<BackgroundLoader<int>>(10, [&](std::int64_t) {
    if (calls++ == 0) begun.count_down();
    go_on.wait();
    return returns++;
  });
  begun.wait();
  std::thread end([&] { loader.reset(); });
  go_on.count_down();
  end.join();
  EXPECT_EQ(returns, calls);
}

TEST(BackgroundLoader, TakesTypesThatCanOnlyBeMoved) {
  BackgroundLoader<std::unique_ptr<int>> loader(
      3, [](std::int64_t number) { return std::make_unique<int>(static_cast<int>(number)); });
  EXPECT_EQ(**loader.next(), 0);
  EXPECT_EQ(**loader.next(), 1);
}

}  // namespace
}  // namespace kolo::internal
