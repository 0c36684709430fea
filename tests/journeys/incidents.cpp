// SPDX-License-Identifier: Apache-2.0
#include "incidents.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "kolo/kolo.hpp"

namespace kolo::internal::journeys {
namespace {

template <typename Expected>
void require_throws(const std::string& what, const std::function<void()>& call) {
  try {
    call();
  } catch (const Expected&) {
    return;
  } catch (const std::exception& error) {
    throw Unexpected(what + " failed in another way: " + error.what());
  }
  throw Unexpected(what + " did not fail");
}

void mismatch(const Scene& scene) {
  std::vector<float> values(scene.is_odd() ? 4 : 3, 1.0F);
  std::vector<double> doubles(3, 1.0);
  const bool odd = scene.is_odd();
  require_throws<Mismatch>("a mismatch", [&] {
    switch (scene.event.variant % 5) {
      case 0: return allreduce(values, {.name = scene.name});
      case 1:
        return odd ? allreduce(doubles, {.name = scene.name})
                   : allreduce(std::span(values).first(3), {.name = scene.name});
      case 2:
        return allreduce(std::span(doubles),
                         {.name = scene.name, .op = odd ? ReduceOp::max : ReduceOp::sum});
      case 3:
        return broadcast(doubles, odd ? scene.odd() : (scene.odd() + 1) % scene.ranks,
                         {.name = scene.name});
      default:
        return allreduce(std::span(doubles), {.name = scene.name, .prescale = odd ? 2.0 : 1.0});
    }
  });
  if (std::ranges::any_of(doubles, [](double value) { return value != 1.0; }))
    throw Unexpected("a mismatch changed a tensor");
}

void refused(const Scene& scene) {
  float value = 1.0F;
  std::vector<float> values(4, 1.0F);
  const auto call = [&] {
    switch (scene.event.variant % 9) {
      case 0:
        return allreduce(
            value, {.name = scene.name, .prescale = std::numeric_limits<double>::quiet_NaN()});
      case 1:
        return allreduce(TensorView(&value, Shape(std::int64_t{1} << 60)), {.name = scene.name});
      case 2:
        return allreduce(TensorView(&value, Shape(std::int64_t{1} << 32, std::int64_t{1} << 32)),
                         {.name = scene.name});
      case 3: return allreduce(TensorView(&value, Shape(-1)), {.name = scene.name});
      case 4: return broadcast(value, scene.ranks, {.name = scene.name});
      case 5: return static_cast<void>(add_process_set({}));
      case 6: return static_cast<void>(add_process_set({0, 0}));
      case 7:
        return static_cast<void>(
            alltoall(values, std::vector<int>(static_cast<std::size_t>(scene.ranks), 7),
                     {.name = scene.name}));
      default: return MetricAverage({"loss"}).add("los", 1.0);
    }
  };
  require_throws<InvalidArgument>("a wrong argument", call);
}

/// The odd rank submits a name again while it is pending: the others submit it only afterwards.
void duplicate(const Scene& scene) {
  std::int64_t value = scene.rank + 1;
  std::int64_t again = 0;
  const AllreduceOptions options{.name = scene.name, .op = ReduceOp::sum};
  Future<void> pending;
  if (scene.is_odd()) {
    pending = allreduce_async(value, options);
    require_throws<DuplicateName>("a name that is pending",
                                  [&] { static_cast<void>(allreduce_async(again, options)); });
  }
  barrier({.name = scene.name + " submitted"});
  if (!scene.is_odd()) pending = allreduce_async(value, options);
  pending.get();
  if (value != std::int64_t{scene.ranks} * (scene.ranks + 1) / 2)
    throw Unexpected("a wrong sum beside a duplicate");
}

void wrong_argument(const Scene& scene) {
  if (scene.event.variant % 10 == 9 && scene.ranks > 1) return duplicate(scene);
  if (scene.is_odd()) refused(scene);
}

void forward_exception(const Scene& scene) {
  try {
    on_every_rank([&] {
      if (!scene.is_odd()) return;
      if (scene.event.variant % 2 == 0) throw std::runtime_error("a bad batch");
      throw 42;
    });
  } catch (const Error& error) {
    if (error.ranks() == std::vector<int>{scene.odd()}) return;
    throw Unexpected(std::string("on_every_rank blames another rank: ") + error.what());
  }
  throw Unexpected("on_every_rank did not throw");
}

// A child runs destructors, as one that returns from a function does.
void fork_once(const Scene& scene) {
  if (!scene.is_odd()) return;
  auto shared = std::make_unique<SharedVector<float>>(20000, 1.0F);
  if (scene.event.variant % 2 == 0) scene.helpers.start();
  const pid_t child = ::fork();
  if (child < 0) throw Unexpected("fork failed");
  if (child == 0) {
    shared.reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  if (std::ranges::any_of(*shared, [](float value) { return value != 1.0F; }))
    throw Unexpected("a forked child changed this rank's SharedVector");
}

void pending_future(const Scene& scene) {
  float value = 1.0F;
  const AllreduceOptions options{.name = scene.name, .op = ReduceOp::sum};
  if (!scene.is_odd()) {
    allreduce(value, options);
  } else {
    try {
      const Future<void> pending = allreduce_async(value, options);
      throw std::runtime_error("a bad batch");
    } catch (const std::runtime_error&) {
    }
  }
  if (value != static_cast<float>(scene.ranks))
    throw Unexpected("a wrong sum after an exception with a pending future");
}

void callback_exception(const Scene& scene) {
  const std::vector<float> mine(4, 1.0F);
  std::vector<float> all(static_cast<std::size_t>(4 * scene.ranks));
  const auto allocate = [&](std::span<const std::int64_t>) -> void* {
    if (!scene.is_odd()) return all.data();
    if (scene.event.variant % 2 == 0) throw std::runtime_error("no memory");
    throw 42;
  };
  try {
    static_cast<void>(allgather(ConstTensorView(mine), allocate, {.name = scene.name}));
  } catch (const PeerLeft& error) {
    if (!scene.is_odd() && error.ranks() == std::vector<int>{scene.odd()}) return;
    throw Unexpected(std::string("after an exception in a callback: ") + error.what());
  } catch (...) {
    if (scene.is_odd()) return;
    throw Unexpected("an exception in another rank's callback gave no PeerLeft");
  }
  if (scene.is_odd()) throw Unexpected("an exception in a callback was lost");
}

/// The ranks that stay use a set of their own, also around a join that is refused.
void go_on_without(const Scene& scene, const ProcessSet& others) {
  const auto sum = [&](float value) {
    float total = value;
    allreduce(total, {.op = ReduceOp::sum, .process_set = others});
    return total;
  };
  const auto members = static_cast<float>(others.size());
  float early = 3.0F;
  Future<void> first = allreduce_async(early, {.op = ReduceOp::sum, .process_set = others});
  if (others.rank() == others.size() - 1)
    require_throws<PeerLeft>("join after a departure", [] { static_cast<void>(join()); });
  const float second = sum(5.0F);
  const float third = sum(7.0F);
  first.get();
  if (early != 3.0F * members || second != 5.0F * members || third != 7.0F * members)
    throw Unexpected("wrong sums among the ranks that stay: " + std::to_string(early) + ' ' +
                     std::to_string(second) + ' ' + std::to_string(third) + " on rank " +
                     std::to_string(scene.rank));
}

void departure(const Scene& scene) {
  std::vector<int> staying;
  for (int rank = 0; rank < scene.ranks; ++rank)
    if (rank != scene.odd()) staying.push_back(rank);
  if (staying.empty()) return;
  const ProcessSet others = add_process_set(staying);
  if (scene.is_odd()) {
    if (scene.event.variant % 2 == 0) throw Departure();
    shutdown();
    return;
  }
  try {
    barrier({.name = scene.name});
    throw Unexpected("a barrier passed without a rank that has left");
  } catch (const PeerLeft& error) {
    if (error.ranks() != std::vector<int>{scene.odd()})
      throw Unexpected(std::string("another rank is blamed for a departure: ") + error.what());
  }
  go_on_without(scene, others);
}

}  // namespace

void require_working_session(const Scene& scene, const std::string& after) {
  std::int64_t value = scene.rank + 1;
  allreduce(value, {.name = scene.name + " works", .op = ReduceOp::sum});
  if (value != std::int64_t{scene.ranks} * (scene.ranks + 1) / 2)
    throw Unexpected("a wrong sum after " + after);
}

void run_incident(const Scene& scene) {
  switch (scene.event.incident) {
    case Incident::mismatch:
      if (scene.ranks > 1) mismatch(scene);
      return require_working_session(scene, "a mismatch");
    case Incident::wrong_argument:
      wrong_argument(scene);
      return require_working_session(scene, "a wrong argument");
    case Incident::forward_exception: return forward_exception(scene);
    case Incident::fork: fork_once(scene); return require_working_session(scene, "a fork");
    case Incident::pending_future:
      pending_future(scene);
      return require_working_session(scene, "an exception with a pending future");
    case Incident::callback_exception: return callback_exception(scene);
    case Incident::departure: return departure(scene);
    case Incident::hook_exception: return;  // the trainer's
  }
}

}  // namespace kolo::internal::journeys
