// SPDX-License-Identifier: Apache-2.0
#include "incidents.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "bad_input.hpp"
#include "burdens.hpp"
#include "kolo/kolo.hpp"

namespace kolo::internal::journeys {
namespace {

void rows_of_other_width(const Scene& scene) {
  const std::vector<float> rows(6, 1.0F);
  std::vector<float> all;
  const auto allocate = [&](std::span<const std::int64_t>) -> void* {
    throw Unexpected("an allocator was called for rows that do not fit");
  };
  const Shape shape = scene.is_odd() ? Shape(3, 2) : Shape(2, 3);
  static_cast<void>(allgather(ConstTensorView(rows.data(), shape), allocate, {.name = scene.name}));
}

void group_of_other_size(const Scene& scene, std::vector<double>& doubles) {
  std::vector<TensorView> tensors{TensorView(doubles)};
  float one = 1.0F;
  if (scene.is_odd()) tensors.emplace_back(one);
  grouped_allreduce(tensors, {.name = scene.name});
}

void mismatch(const Scene& scene) {
  std::vector<float> values(scene.is_odd() ? 4 : 3, 1.0F);
  std::vector<double> doubles(3, 1.0);
  const bool odd = scene.is_odd();
  require_throws<Mismatch>("a mismatch", [&] {
    switch (scene.event.variant % 9) {
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
      case 4:
        return static_cast<void>(add_process_set({odd ? scene.odd() : scene.others().front()}));
      case 5: return odd ? barrier({.name = scene.name}) : allreduce(doubles, {.name = scene.name});
      case 6: return rows_of_other_width(scene);
      case 7: return group_of_other_size(scene, doubles);
      default:
        return allreduce(std::span(doubles), {.name = scene.name, .prescale = odd ? 2.0 : 1.0});
    }
  });
  if (std::ranges::any_of(doubles, [](double value) { return value != 1.0; }))
    throw Unexpected("a mismatch changed a tensor");
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

bool long_text(const Scene& scene) { return scene.program.has(Feature::long_names); }

void callback_exception(const Scene& scene) {
  const std::vector<float> mine(4, 1.0F);
  std::vector<float> all(static_cast<std::size_t>(4 * scene.ranks));
  const auto allocate = [&](std::span<const std::int64_t>) -> void* {
    if (!scene.is_odd()) return all.data();
    if (scene.event.variant % 2 != 0) throw 42;
    throw std::runtime_error("no memory" + std::string(long_text(scene) ? 10000 : 0, '!'));
  };
  try {
    static_cast<void>(allgather(ConstTensorView(mine), allocate, {.name = scene.name}));
  } catch (const PeerLeft& error) {
    const bool reason = std::string_view(error.what()).find("allgather") != std::string_view::npos;
    if (!scene.is_odd() && error.ranks() == std::vector<int>{scene.odd()} && reason) return;
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
  const ProcessSet others = add_process_set(scene.others());
  // Sometimes a rank has joined when the other leaves.
  const bool joins = scene.event.variant / 2 % 3 == 0 && scene.rank == scene.others().front();
  if (scene.is_odd()) {
    if (scene.event.variant % 2 == 0) throw Departure();
    shutdown();
    return;
  }
  try {
    if (joins) {
      static_cast<void>(join());
    } else {
      barrier({.name = scene.name});
    }
    throw Unexpected("a barrier passed without a rank that has left");
  } catch (const PeerLeft& error) {
    if (error.ranks() != std::vector<int>{scene.odd()})
      throw Unexpected(std::string("another rank is blamed for a departure: ") + error.what());
  }
  // A rank that has joined stays out until the session ends.
  if (scene.event.variant / 2 % 3 != 0) go_on_without(scene, others);
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
    case Incident::stopped: stop(scene); return require_working_session(scene, "a stop");
    case Incident::many_names:
      many_names(scene);
      return require_working_session(scene, "many names");
    case Incident::set_churn:
      churn_sets(scene);
      return require_working_session(scene, "sets that come and go");
  }
}

}  // namespace kolo::internal::journeys
