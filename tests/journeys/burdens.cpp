// SPDX-License-Identifier: Apache-2.0
#include "burdens.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kolo/kolo.hpp"

namespace kolo::internal::journeys {
namespace {

/// Allreduces of so many names, all pending at once, in another order on each rank.
void reduce_names(const Scene& scene, std::size_t first, std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), first);
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count) * scene.rank / 4,
              order.end());
  if (scene.is_odd()) std::ranges::reverse(order);
  std::vector<std::int32_t> values(count);
  std::vector<Future<void>> pending;
  for (const std::size_t number : order) {
    std::string name = scene.name + " name " + std::to_string(number);
    if (scene.program.has(Feature::long_names) && number % 100 == 0)
      name += std::string(10000, 'x');
    std::int32_t& value = values[number - first];
    value = scene.rank + static_cast<std::int32_t>(number);
    pending.push_back(allreduce_async(value, {.name = name, .op = ReduceOp::sum}));
  }
  for (Future<void>& future : pending) future.get();
  for (std::size_t i = 0; i < count; ++i)
    if (values[i] !=
        scene.ranks * (scene.ranks - 1) / 2 + scene.ranks * static_cast<std::int32_t>(first + i))
      throw Unexpected("a wrong sum of name " + std::to_string(first + i));
}

/// Each name is used several times, so that it gets a slot of the cache.
void use_names(const Scene& scene, const ProcessSet& set, int names) {
  for (int round = 0; round < 3; ++round) {
    std::vector<float> values(static_cast<std::size_t>(names), 1.0F);
    std::vector<Future<void>> pending;
    for (int i = 0; i < names; ++i)
      pending.push_back(allreduce_async(
          values[static_cast<std::size_t>(i)],
          {.name = scene.name + ' ' + std::to_string(i), .op = ReduceOp::sum, .process_set = set}));
    for (Future<void>& future : pending) future.get();
    for (const float value : values)
      if (value != static_cast<float>(set.size())) throw Unexpected("a wrong sum in a set");
  }
}

/// A name that comes again must not travel again. Other names between keep plans from it.
void require_cache(const Scene& scene) {
  constexpr std::size_t length = 4000;
  constexpr int times = 10;
  const auto reduce = [](const std::string& name) {
    float value = 1.0F;
    allreduce(value, {.name = name});
  };
  std::uint64_t before = 0;
  for (int i = 0; i < times + 3; ++i) {
    if (i == 3) before = statistics().message_bytes_sent;
    reduce(scene.name + " again" + std::string(length, 'c'));
    reduce(scene.name + " once " + std::to_string(i));
  }
  const std::uint64_t sent = statistics().message_bytes_sent - before;
  if (sent > length * times / 2)
    throw Unexpected("a name that comes again is not in the cache: " + std::to_string(sent) +
                     " bytes of messages");
}

/// Equal ranks have the same set, which the optimizer goes on to use.
bool is_of_optimizer(const Scene& scene, const std::vector<int>& members) {
  return std::ranges::any_of(scene.program.models(scene.ranks), [&](const Model& model) {
    return std::ranges::find(model.sets, members) != model.sets.end();
  });
}

}  // namespace

void many_names(const Scene& scene) {
  const std::uint64_t variant = scene.event.variant;
  const std::size_t count = variant % 40 == 0 ? 100000 : 500 + variant % 2500;
  if (count == 100000) watch_again(4);
  const std::size_t at_once = variant / 40 % 2 == 0 ? count : 250;
  for (std::size_t first = 0; first < count; first += at_once)
    reduce_names(scene, first, std::min(at_once, count - first));
  watch_again(1);
}

void churn_sets(const Scene& scene) {
  const std::uint64_t variant = scene.event.variant;
  for (int round = 0; round < 8; ++round) {
    std::vector<int> members;
    for (int rank = 0; rank < scene.ranks; ++rank)
      if (((variant >> (round * 3 + rank)) & 1U) != 0 || rank == round % scene.ranks)
        members.push_back(rank);
    if (is_of_optimizer(scene, members)) continue;
    const ProcessSet set = add_process_set(members);
    const auto reduce = [&] {
      float value = 1.0F;
      allreduce(value, {.name = scene.name, .process_set = set});
    };
    if (set.contains(scene.rank)) use_names(scene, set, 60);
    if (!set.contains(scene.rank))
      require_throws<InvalidArgument>("an operation of a set of other ranks", reduce);
    remove_process_set(set);
    require_throws<InvalidArgument>("an operation of a set that was removed", reduce);
  }
  if (!scene.program.has(Feature::small_cache)) require_cache(scene);
}

namespace {

void wait_until_stopped(pid_t pid) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (std::string line; std::chrono::steady_clock::now() < end;) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    while (std::getline(status, line))
      if (line.starts_with("State:") && line.find('T') != line.npos) return;
    std::this_thread::yield();
  }
  throw Unexpected("a rank that stops itself does not stop");
}

}  // namespace

void stop(const Scene& scene) {
  if (scene.ranks == 1) return;
  const std::vector<int> others = scene.others();
  const ProcessSet set = add_process_set(others);
  const std::vector<std::int64_t> mine{::getpid()};
  const auto pids = allgather(mine, {.name = scene.name}).values;
  const auto pid = static_cast<pid_t>(pids[static_cast<std::size_t>(scene.odd())]);
  // Whoever stops has no part in anything that is under way: the barrier comes after what was
  // before.
  barrier({.name = scene.name + " read"});
  // The last rank passes no messages on, so that the others need it for nothing; unless other
  // threads have a batch of all ranks under way, after which later batches wait.
  const bool needed = scene.odd() != scene.ranks - 1 || scene.program.has(Feature::threads);
  const int times = scene.is_odd() || needed ? 0 : 20 + static_cast<int>(scene.event.variant % 200);
  if (scene.is_odd()) ::raise(SIGSTOP);
  if (scene.rank == others.front()) wait_until_stopped(pid);
  std::int64_t sum = 1;
  Future<void> pending =
      allreduce_async(sum, {.name = scene.name + " of all", .op = ReduceOp::sum});
  for (int i = 0; i < times; ++i) {
    std::int64_t value = i + scene.rank;
    allreduce(value, {.name = "beside a stop", .op = ReduceOp::max, .process_set = set});
    if (value != i + others.back()) throw Unexpected("a wrong maximum beside a stop");
  }
  if (scene.rank == others.front()) ::kill(pid, SIGCONT);
  pending.get();
  if (sum != scene.ranks) throw Unexpected("a wrong sum around a stop");
}

}  // namespace kolo::internal::journeys
