// SPDX-License-Identifier: Apache-2.0
#include "runner.hpp"

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <exception>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include "kolo/kolo.hpp"

namespace kolo::internal::differential {

Runner::Runner(const Program& program, int rank)
    : program_(program),
      rank_(rank),
      random_(campaign::hash({program.seed, static_cast<std::uint64_t>(rank) + 1})) {}

std::vector<std::string> Runner::run() {
  for (const Phase& phase : program_.phases) {
    run(phase);
    ++phase_;
  }
  return complaints_;
}

void Runner::run(const Phase& phase) {
  for (const SetChange& one : phase.changes) change(one);
  const auto first = share_out(prepare(phase.operations), phase);
  const auto without_joined = share_out(prepare(phase.without_joined), phase);
  const bool joins = !phase.joining.empty();
  const bool joins_early = std::ranges::binary_search(phase.joining, rank_);
  std::optional<Future<int>> joined;
  std::barrier together(phase.threads);
  const std::uint64_t seed = random_.below(1U << 30U);

  const auto work = [&](std::size_t thread) {
    const auto join_together = [&] {
      together.arrive_and_wait();  // after what the other threads submit
      if (thread == 0) joined = join_async();
    };
    submit(first[thread], phase.in_step);
    if (joins_early) join_together();
    submit(without_joined[thread], phase.in_step);
    if (joins && !joins_early) join_together();
    std::vector<Execution*> mine = first[thread];
    mine.insert(mine.end(), without_joined[thread].begin(), without_joined[thread].end());
    finish(std::move(mine), campaign::hash({seed, thread}));
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < first.size(); ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  executions_.clear();
  if (joined) check_last(joined->get());
}

// ---- process sets ----

void Runner::change(const SetChange& change) {
  if (change.added.empty()) return remove(change);
  const ProcessSet set = add_process_set(change.added);
  if (set.ranks() != change.added) complain("a new set has other ranks");
  const auto same = std::find(sets_.begin() + 1, sets_.end(), set);
  const auto alike = std::find_if(sets_.begin() + 1, sets_.end(), [&](const ProcessSet& known) {
    return known.ranks() == change.added;
  });
  if (same != alike) complain("the same ranks are not the same set, or others are");
  if (same == sets_.end()) sets_.push_back(set);
}

void Runner::remove(const SetChange& change) {
  const ProcessSet set = sets_[change.removed];
  float value = 1.0F;
  Future<void> pending;
  if (change.while_pending && set.rank() == 0)
    pending = allreduce_async(value, {.name = "pending", .process_set = set});
  remove_process_set(set);
  std::swap(sets_[change.removed], sets_.back());
  sets_.pop_back();
  if (pending.valid()) {
    try {
      pending.wait();
      complain("an operation in a removed set was done");
    } catch (const ShutDown& error) {
      if (error.tensor() != "pending") complain("ShutDown names " + error.tensor());
    }
  }
  try {
    barrier(set);
    complain("a removed set was accepted");
  } catch (const InvalidArgument&) {
  }
}

// ---- operations ----

std::vector<Execution*> Runner::prepare(const std::vector<Operation>& operations) {
  std::vector<Execution*> mine;
  for (const Operation& operation : operations) {
    if (!std::ranges::binary_search(operation.present, rank_)) continue;
    executions_.push_back(std::make_unique<Execution>(operation, sets_[operation.set], rank_));
    mine.push_back(executions_.back().get());
  }
  operations_ += static_cast<std::int64_t>(mine.size());
  return mine;
}

/// Distributes the operations among threads, in an order of this rank's own. Unnamed operations of
/// a set keep their order and stay on one thread.
std::vector<std::vector<Execution*>> Runner::share_out(const std::vector<Execution*>& executions,
                                                       const Phase& phase) {
  const auto threads = static_cast<std::size_t>(phase.threads);
  std::vector<std::vector<Execution*>> shares(threads);
  for (Execution* execution : executions) {
    const Operation& operation = execution->operation();
    const std::size_t thread =
        operation.name.empty() ? operation.set % threads : random_.below(threads);
    shares[thread].push_back(execution);
  }
  if (phase.in_step) return shares;
  for (std::vector<Execution*>& share : shares) {
    std::vector<Execution*> shuffled = share;
    random_.shuffle(shuffled);
    share = std::move(shuffled);
    restore_order_of_unnamed(share);
  }
  return shares;
}

void Runner::restore_order_of_unnamed(std::vector<Execution*>& executions) const {
  const auto position = [&](const Execution* execution) {
    return std::ranges::find(executions_, execution, &std::unique_ptr<Execution>::get) -
           executions_.begin();
  };
  std::map<std::size_t, std::vector<Execution*>> unnamed;  // by set
  for (Execution* execution : executions)
    if (execution->operation().name.empty())
      unnamed[execution->operation().set].push_back(execution);
  for (auto& [set, some] : unnamed) {
    std::ranges::sort(some, {}, position);
    auto next = some.begin();
    for (Execution*& execution : executions)
      if (execution->operation().name.empty() && execution->operation().set == set)
        execution = *next++;
  }
}

void Runner::submit(const std::vector<Execution*>& executions, bool in_step) {
  for (Execution* execution : executions) {
    try {
      if (in_step) {
        execution->run();
      } else {
        execution->submit();
      }
    } catch (const std::exception& error) {
      complain(to_string(execution->operation()) + ": refused: " + error.what());
    }
  }
}

/// In any order; some are never asked.
void Runner::finish(std::vector<Execution*> executions, std::uint64_t seed) {
  campaign::Random random(seed);
  random.shuffle(executions);
  for (Execution* execution : executions) {
    if (random.once_in(10)) continue;
    const std::string complaint = execution->finish();
    if (!complaint.empty()) complain(to_string(execution->operation()) + ": " + complaint);
  }
}

void Runner::check_last(int last) {
  int told = last;
  broadcast(told, 0, {.name = "the last to join"});
  if (told != last) complain("join returned another rank than on rank 0");
}

void Runner::complain(const std::string& text) {
  const std::lock_guard lock(mutex_);
  complaints_.push_back("phase " + std::to_string(phase_) + ": " + text);
}

std::int64_t run_program(const Program& program) {
  Runner runner(program, kolo::rank());
  const std::vector<std::string> complaints = runner.run();
  for (const std::string& complaint : complaints)
    std::fprintf(stderr, "seed %llu, rank %d, %s\n", static_cast<unsigned long long>(program.seed),
                 kolo::rank(), complaint.c_str());
  auto failed = static_cast<std::int64_t>(complaints.size());
  kolo::allreduce(failed, {.name = "failed", .op = kolo::ReduceOp::sum});
  if (failed != 0) throw std::runtime_error(std::to_string(failed) + " complaints");
  return runner.operations();
}

}  // namespace kolo::internal::differential
