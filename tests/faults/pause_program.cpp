// SPDX-License-Identifier: Apache-2.0
// Checked work without end, in sessions that are opened again and again, while run_pauses.py stops
// and continues its processes: plans of changing sizes and orders, joins at unequal epochs, process
// sets, departures. An error that ends a session is printed, and the ranks open the next one.
//
// Usage: pause_program FOLDER SEED
//
// Each rank writes to FOLDER/rank.R what it does; the work ends when FOLDER/end exists.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

/// run_pauses.py has the same list.
enum class Phase : std::int64_t { start, plan, join, sets, departure, end };

/// The record that run_pauses.py reads, in the order of its fields.
struct Progress {
  std::atomic<std::int64_t> process;
  std::atomic<std::int64_t> steps;
  std::atomic<Phase> phase;
};

std::string folder;
Progress* progress = nullptr;

int launched_rank() {
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK"})
    if (const char* const rank = std::getenv(name)) return std::atoi(rank);
  throw std::runtime_error("there is no launcher");
}

void publish_progress() {
  const std::string path = fmt::format("{}/rank.{}", folder, launched_rank());
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0 || ::ftruncate(file, sizeof(Progress)) != 0)
    throw std::runtime_error("cannot write " + path);
  void* const memory =
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path);
  progress = new (memory) Progress;
  progress->process = ::getpid();
}

void begin(Phase phase) { progress->phase = phase; }
void made_step() { progress->steps += 1; }

/// Whole lines: other ranks write to the same file.
void say(const std::string& text) {
  std::string line = fmt::format("rank {} {}", launched_rank(), text);
  std::ranges::replace(line, '\n', '|');
  line += '\n';
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::abort();
}

/// The same numbers on all ranks.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t count) { return engine_() % count; }
  std::vector<std::size_t> order(std::size_t count) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[below(i)]);
    return order;
  }

 private:
  std::mt19937_64 engine_;
};

void expect_all(std::span<const float> values, float expected, const std::string& what) {
  for (const float value : values)
    if (value != expected)
      return say(fmt::format("has a wrong {}: {} in place of {}", what, value, expected));
}

/// The sum of the summands of these ranks, times `factor`.
float sum_of(const std::vector<int>& ranks, int factor) {
  int sum = 0;
  for (const int rank : ranks) sum += (rank + 1) * factor;
  return static_cast<float>(sum);
}

float summand(int factor) { return static_cast<float>((kolo::rank() + 1) * factor); }

void compute(std::size_t milliseconds) {
  if (milliseconds > 0) std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// Repeats a step, which becomes a plan on one host. Named operations may come in an order of each
/// rank's own.
void plan(Draw& draw) {
  begin(Phase::plan);
  const std::vector<int> all = kolo::world().ranks();
  std::vector<std::vector<float>> tensors(2 + draw.below(5));
  for (std::vector<float>& tensor : tensors) tensor.resize(1 + draw.below(20'000));
  std::vector<std::vector<std::size_t>> orders;  // by rank
  const bool one_order = draw.below(2) == 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    orders.push_back(one_order && rank > 0 ? orders.front() : draw.order(tensors.size()));
  const std::size_t time = 2 * draw.below(2);
  const auto passes = static_cast<int>(30 + draw.below(40));
  for (int pass = 0; pass < passes; ++pass) {
    const int factor = pass % 7 + 1;
    std::vector<kolo::Future<void>> reduced;
    for (const std::size_t i : orders[static_cast<std::size_t>(kolo::rank())]) {
      std::ranges::fill(tensors[i], summand(factor));
      reduced.push_back(kolo::allreduce_async(
          tensors[i], {.name = fmt::format("layer {}", i), .op = kolo::ReduceOp::sum}));
    }
    compute(time);
    for (kolo::Future<void>& each : reduced) each.get();
    for (const std::vector<float>& tensor : tensors)
      expect_all(tensor, sum_of(all, factor), "sum of a plan");
    made_step();
  }
}

/// Epochs of unequal lengths.
void join(Draw& draw) {
  begin(Phase::join);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> steps;  // by rank
    for (int rank = 0; rank < kolo::size(); ++rank)
      steps.push_back(static_cast<int>(draw.below(20)));
    for (int step = 0; step < steps[static_cast<std::size_t>(kolo::rank())]; ++step) {
      std::vector<int> present;
      for (int rank = 0; rank < kolo::size(); ++rank)
        if (steps[static_cast<std::size_t>(rank)] > step) present.push_back(rank);
      std::vector<float> tensor(500, summand(step + 1));
      kolo::allreduce(tensor, {.name = "uneven", .op = kolo::ReduceOp::sum});
      expect_all(tensor, sum_of(present, step + 1), "sum before a join");
      compute(1);
      made_step();
    }
    if (const int last = kolo::join(); last < 0 || last >= kolo::size())
      say(fmt::format("has a wrong last rank to join: {}", last));
    made_step();
  }
}

void sets(Draw& draw) {
  begin(Phase::sets);
  for (int i = 0; i < 6; ++i) {
    std::vector<int> members;
    for (const std::size_t rank : draw.order(static_cast<std::size_t>(kolo::size())))
      if (members.empty() || draw.below(3) > 0) members.push_back(static_cast<int>(rank));
    const kolo::ProcessSet set = kolo::add_process_set(members);
    for (int step = 1; step <= 4 && set.rank() >= 0; ++step) {  // the others wait so long
      std::vector<float> tensor(2000, summand(step));
      kolo::allreduce(tensor, {.name = "in a set", .op = kolo::ReduceOp::sum, .process_set = set});
      expect_all(tensor, sum_of(members, step), "sum of a set");
      compute(1);
      made_step();
    }
    kolo::remove_process_set(set);
    made_step();
  }
}

/// One rank leaves its session, which ends that of the others.
void departure(Draw& draw) {
  begin(Phase::departure);
  const auto leaver = static_cast<int>(draw.below(static_cast<std::size_t>(kolo::size())));
  if (kolo::rank() == leaver) return kolo::shutdown();
  try {
    kolo::barrier({.name = "without a rank"});
    say("has passed a barrier without a rank that has left");
  } catch (const kolo::PeerLeft& error) {
    if (error.ranks() != std::vector<int>{leaver}) throw;
  }
}

/// Returns true at the end of all work.
bool work_for_one_session(std::uint64_t seed, std::int64_t& round) {
  kolo::allreduce(round, {.name = "round", .op = kolo::ReduceOp::max});  // after an error
  for (std::size_t rounds = 1 + static_cast<std::size_t>(round) % 3; rounds > 0; --rounds) {
    Draw draw(seed * 1'000'003 + static_cast<std::uint64_t>(round));
    ++round;
    plan(draw);
    join(draw);
    sets(draw);
    int ends = ::access((folder + "/end").c_str(), F_OK) == 0 ? 1 : 0;
    kolo::broadcast(ends, 0, {.name = "end"});
    if (ends != 0) return true;
    if (rounds == 1 && draw.below(2) == 0) departure(draw);
  }
  return false;
}

void work(std::uint64_t seed) {
  std::int64_t round = 0;
  for (bool done = false; !done;) {
    begin(Phase::start);
    try {
      const kolo::Session session;
      done = work_for_one_session(seed, round);
      begin(Phase::end);
    } catch (const kolo::Error& error) {
      say(fmt::format("ends its session because of [{}]: {}", fmt::join(error.ranks(), " "),
                      error.what()));
      ++round;
    }
    made_step();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[1];
  try {
    publish_progress();
    work(std::stoull(argv[2]));
  } catch (const std::exception& error) {
    say(fmt::format("ends by an exception: {}", error.what()));
    return 1;
  }
  say("ends well");
}
