// SPDX-License-Identifier: Apache-2.0
// Random programs with their steps in any order: with one thread for all ranks, so that a failing
// seed fails again, and with a thread per rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "node_layouts.hpp"
#include "shm_host.hpp"
#include "shm_program.hpp"

namespace kolo::internal::backend {
namespace {

std::vector<int> all_ranks(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

constexpr std::size_t bytes_of_heap = std::size_t{32} << 20;

/// The program, and who runs it.
struct World {
  World(const Mixture& mixture, std::int64_t piece_bytes, std::vector<int> nodes,
        std::uint64_t seed)
      : program(random_program(mixture, seed)),
        host(all_ranks(mixture.ranks), piece_bytes, bytes_of_heap, few_ranks_on(std::move(nodes))) {
  }

  std::vector<Step> program;
  ShmHost host;
};

/// Gives most arrays of a rank a place in its heap, which may begin at any element.
class HeapArrays {
 public:
  HeapArrays(const ShmHost& host, int rank, std::uint64_t seed)
      : heap_(host.heap(rank)), random_(seed) {}

  std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    used_ += random_() % 8 * sizeof(double);
    if (random_() % 4 == 0 || used_ + bytes > bytes_of_heap) return nullptr;
    std::byte* const place = heap_ + used_;
    used_ += (bytes + sizeof(double) - 1) / sizeof(double) * sizeof(double);
    return {place, [](std::byte*) {}};
  }

 private:
  std::byte* heap_;
  std::mt19937_64 random_;
  std::size_t used_ = 0;
};

/// One rank on its way through the program: a few batches are under way at once.
class Walker {
 public:
  Walker(World& world, int rank, std::uint64_t seed)
      : world_(world),
        rank_(rank),
        random_(seed),
        max_at_once_(1 + random_() % 12),
        arrays_(world.host, rank, seed) {}

  [[nodiscard]] bool done() const { return next_ == world_.program.size() && running_.empty(); }

  /// Starts the next batch, or steps one of those under way. False if nothing moved.
  bool move_one() {
    if (random_() % 3 == 0 && prepare_next()) return true;
    if (random_() % 3 == 0 && start_next()) return true;
    if (running_.empty()) return start_next();
    return step(random_() % running_.size());
  }

  /// All that can be done at once.
  bool move_all() {
    bool moved = false;
    while (start_next()) moved = true;
    for (std::size_t i = running_.size(); i-- > 0;) moved |= step(i);
    return moved;
  }

  /// Nobody has written to results since.
  void expect_all_hold() {
    for (const auto& [number, task] : tasks_)
      EXPECT_TRUE(task->holds()) << "in the end, step " << number << " on rank " << rank_;
  }

 private:
  struct Running {
    std::size_t number = 0;
    Task* task = nullptr;
    std::unique_ptr<Execution> execution{};
  };

  bool start_next() {
    if (next_ == world_.program.size() || running_.size() == max_at_once_) return false;
    if (takes_part_in_next()) {
      Running next = std::exchange(upcoming_, {});
      if (next.task == nullptr) next = {next_, add_task(), nullptr};
      if (next.execution == nullptr)
        next.execution = world_.host.backend(rank_).start(marked(*next.task, 2));
      running_.push_back(std::move(next));
    }
    ++next_;
    return true;
  }

  /// As a plan does: either this rank starts the batch next, or it is withdrawn. Here another one,
  /// with the same number and its own mark, comes in its place. False if it was prepared before.
  bool prepare_next() {
    if (next_ == world_.program.size() || upcoming_.task != nullptr || !takes_part_in_next())
      return false;
    const bool withdrawn = random_() % 4 == 0;
    Task* const task = add_task();
    const std::vector<int>& ranks = world_.program[next_].ranks;
    Running prepared{next_, task, nullptr};
    // Batches of some of the ranks are in no plan.
    if (ranks.size() == world_.host.ranks().size())
      prepared.execution = world_.host.backend(rank_).prepare(marked(*task, withdrawn ? 1 : 2));
    if (withdrawn) prepared.execution = nullptr;
    upcoming_ = std::move(prepared);
    return true;
  }

  [[nodiscard]] bool takes_part_in_next() const {
    return std::ranges::binary_search(world_.program[next_].ranks, rank_);
  }

  Task* add_task() {
    array_memory() = [this](std::size_t bytes) { return arrays_.allocate(bytes); };
    Task* const task =
        tasks_.emplace_back(next_, make_task(world_.program[next_], rank_)).second.get();
    array_memory() = nullptr;
    return task;
  }

  static Batch marked(const Task& task, std::uint64_t which) {
    Batch batch = task.batch();
    batch.mark = 2 * batch.sequence + which;
    return batch;
  }

  bool step(std::size_t which) {
    Running& running = running_[which];
    const Progress progress = running.execution->step();
    if (progress != Progress::done) return progress == Progress::moved;
    EXPECT_TRUE(running.task->holds()) << "step " << running.number << " on rank " << rank_;
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
    return true;
  }

  World& world_;
  int rank_;
  std::mt19937_64 random_;
  std::size_t max_at_once_;
  HeapArrays arrays_;
  std::size_t next_ = 0;
  std::deque<std::pair<std::size_t, std::unique_ptr<Task>>> tasks_{};
  std::vector<Running> running_{};
  Running upcoming_{};  // without a task: none
};

/// One rank, unless it is none, has a turn only now and then.
void run_on_one_thread(World& world, std::optional<std::size_t> slow, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::deque<Walker> walkers;
  for (int rank = 0; rank < std::ssize(world.host.ranks()); ++rank)
    walkers.emplace_back(world, rank, random());
  const auto all_done = [&] { return std::ranges::all_of(walkers, &Walker::done); };
  for (std::size_t idle = 0; !all_done(); ++idle) {
    const std::size_t chosen = random() % walkers.size();
    if (chosen == slow && random() % 100 != 0) continue;
    if (walkers[chosen].move_one()) idle = 0;
    if (idle < 1000 * walkers.size()) continue;
    bool moved = false;
    for (Walker& walker : walkers) moved |= walker.move_all();
    ASSERT_TRUE(moved) << "no rank can go on";
    idle = 0;
  }
  for (Walker& walker : walkers) walker.expect_all_hold();
}

/// Sleeps when there is nothing to do, as a driver does. Nobody is awaited for longer than a run
/// takes, so a sleep that lasts means that a bell was not rung.
void run_to_the_end(World& world, int rank, std::uint64_t seed, bool slow) {
  constexpr std::chrono::seconds too_long{30};
  const node::Doorbell& bell = world.host.bell(rank);
  Walker walker(world, rank, seed);
  while (!walker.done()) {
    for (int i = 0; slow && i < 50; ++i) std::this_thread::yield();
    if (walker.move_one()) continue;
    bell.listen(node::Listener::waiter, node::WakeReason::data);
    if (!walker.move_all()) {
      const auto since = std::chrono::steady_clock::now();
      bell.sleep(node::Listener::waiter, too_long);
      if (std::chrono::steady_clock::now() - since >= too_long) {
        ADD_FAILURE() << "nobody woke rank " << rank;
        return;
      }
    }
    bell.stop_listening();
  }
  walker.expect_all_hold();
}

void run_on_threads(World& world, std::optional<std::size_t> slow, std::uint64_t seed) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < world.host.ranks().size(); ++rank)
    threads.emplace_back([&world, rank, slow, seed] {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      run_to_the_end(world, static_cast<int>(rank), seed * 100 + rank, rank == slow);
    });
  for (std::thread& thread : threads) thread.join();
}

struct Case {
  const char* name;
  Mixture mixture;
  std::int64_t piece_bytes;
  int one_thread_seeds;
  int threads_seeds;
  std::vector<int> nodes{};
};

void PrintTo(const Case& given, std::ostream* out) { *out << given.name; }

/// Pieces of a few elements, or so large that they are reduced in slices.
const Case cases[] = {
    {"OneRank", {.ranks = 1}, 64, 3, 1},
    {"TwoRanks", {.ranks = 2}, 128, 5, 4},
    {"AllOfThree", {.ranks = 3, .all_at_once = true}, 256, 3, 4},
    {"SomeOfFour", {.ranks = 4}, 256, 5, 4},
    {"LargePieces", {.ranks = 3, .steps = 40, .scale = 10}, 20 << 10, 2, 2},
    {"ManyRanks", {.ranks = 10, .steps = 60}, 512, 2, 2},
    {"TwoNodes", {.ranks = 4}, 256, 5, 4, {0, 1, 0, 1}},
    {"UnevenNodes", {.ranks = 4, .all_at_once = true}, 256, 3, 4, {1, 0, 0, 0}},
    {"LargePiecesOnNodes", {.ranks = 3, .steps = 40, .scale = 10}, 40 << 10, 2, 2, {0, 0, 1}},
    {"ManyRanksOnNodes", {.ranks = 10, .steps = 60}, 512, 2, 2, {0, 0, 1, 2, 1, 0, 2, 1, 1, 0}},
};

class ShmSchedules : public testing::TestWithParam<Case> {};

TEST_P(ShmSchedules, OnOneThread) {
  const auto& [name, mixture, piece_bytes, seeds, other_seeds, nodes] = GetParam();
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(seeds); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    World world(mixture, piece_bytes, nodes, seed);
    const auto ranks = static_cast<std::uint64_t>(mixture.ranks);
    run_on_one_thread(world, seed % 2 == 0 ? std::optional(seed / 2 % ranks) : std::nullopt, seed);
    if (HasFailure()) return;
  }
}

TEST_P(ShmSchedules, OnThreads) {
  const auto& [name, mixture, piece_bytes, other_seeds, seeds, nodes] = GetParam();
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(seeds); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    World world(mixture, piece_bytes, nodes, seed);
    const auto ranks = static_cast<std::uint64_t>(mixture.ranks);
    run_on_threads(world, seed % 2 == 1 ? std::optional(seed / 2 % ranks) : std::nullopt, seed);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, ShmSchedules, testing::ValuesIn(cases),
                         [](const auto& given) { return std::string(given.param.name); });

}  // namespace
}  // namespace kolo::internal::backend
