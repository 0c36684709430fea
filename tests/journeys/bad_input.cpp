// SPDX-License-Identifier: Apache-2.0
#include "bad_input.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kolo/kolo.hpp"
#include "kolo/training.hpp"

namespace kolo::internal::journeys {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t too_long = (64 << 10) + 1;  // bytes of a name

struct WrongCall {
  std::string what;
  std::function<void()> call;
};

struct NoModel {
  std::string name;
  float gradient = 0.0F;

  std::vector<NamedTensor> gradients() { return {{name, TensorView(&gradient, Shape(1))}}; }
  void step() {}
};

void make_optimizer(const std::string& name, const DistributedOptimizerOptions& options) {
  NoModel model{.name = name};
  const DistributedOptimizer<NoModel> optimizer(model, options);
}

std::vector<WrongCall> wrong_tensors(float* value, const std::string& name) {
  const auto reduce = [=](const Shape& shape) {
    return [=] { allreduce(TensorView(value, shape), {.name = name}); };
  };
  const auto text = [=] {
    allreduce(TensorView(value, Shape(1)), {.name = std::string(too_long, 'n')});
  };
  return {
      {"2^60 elements", reduce(Shape(std::int64_t{1} << 60))},
      {"2^64 elements", reduce(Shape(std::int64_t{1} << 32, std::int64_t{1} << 32))},
      {"2^63 - 1 elements", reduce(Shape(huge))},
      {"a length of -1", reduce(Shape(-1))},
      {"lengths of -1 and -1", reduce(Shape(-1, -1))},
      {"a name of 64 KiB and a byte", text},
      {"inputs of other sizes than outputs",
       [=] {
         allreduce(ConstTensorView(value, Shape(2)), TensorView(value + 2, Shape(1)),
                   {.name = name});
       }},
      {"an input that overlaps the output",
       [=] {
         allreduce(ConstTensorView(value, Shape(2)), TensorView(value + 1, Shape(2)),
                   {.name = name});
       }},
      {"a reducescatter of a scalar",
       [=] {
         reducescatter(ConstTensorView(value, Shape()), TensorView(value + 1, Shape()),
                       {.name = name});
       }},
  };
}

std::vector<WrongCall> wrong_options(float* value, const std::string& name) {
  const TensorView one(value, Shape(1));
  return {
      {"a prescale of NaN", [=] { allreduce(one, {.name = name, .prescale = nan}); }},
      {"a postscale of NaN", [=] { allreduce(one, {.name = name, .postscale = nan}); }},
      {"an infinite postscale", [=] { allreduce(one, {.name = name, .postscale = infinity}); }},
      {"an operator that does not exist",
       [=] { allreduce(one, {.name = name, .op = static_cast<ReduceOp>(77)}); }},
      {"the mean of booleans",
       [=] {
         bool truth = true;
         allreduce(TensorView(&truth, Shape(1)), {.name = name, .op = ReduceOp::average});
       }},
      {"a weight of NaN", [] { static_cast<void>(average({1.0}, nan)); }},
      {"a metric without that name", [] { MetricAverage({"loss"}).add("los", 1.0); }},
      {"no backward passes", [] { make_optimizer("layer", {.backward_passes_per_step = 0}); }},
      {"a predivide factor of NaN",
       [] { make_optimizer("layer", {.gradient_predivide_factor = nan}); }},
      {"a parameter's name of 64 KiB and a byte",
       [] { make_optimizer(std::string(too_long, 'n'), {}); }},
      {"a group of a parameter that does not exist",
       [] { make_optimizer("layer", {.groups = {{"lyaer"}}}); }},
      {"a second session", [] { init(); }},
  };
}

std::vector<WrongCall> wrong_ranks(float* value, const std::string& name, int ranks) {
  const TensorView one(value, Shape(1));
  const auto size = static_cast<std::size_t>(ranks);
  const auto exchange = [=](std::vector<std::int64_t> counts) {
    return [=] {
      const std::vector<float> four(4, 1.0F);
      static_cast<void>(alltoall(four, counts, {.name = name}));
    };
  };
  const auto add = [](std::vector<int> members) {
    return [members] { static_cast<void>(add_process_set(members)); };
  };
  std::vector<std::int64_t> wraps(size, 0);
  wraps.front() = huge;
  wraps.push_back(huge);
  wraps.push_back(6);
  std::vector<std::int64_t> negative(size, -1);
  negative.front() = 4 + static_cast<std::int64_t>(size) - 1;
  if (size == 1) negative.front() = -4;
  return {
      {"a root beyond the ranks", [=] { broadcast(one, ranks, {.name = name}); }},
      {"a root of -1", [=] { broadcast(one, -1, {.name = name}); }},
      {"a set of no ranks", add({})},
      {"a set with a rank twice", add({0, 0})},
      {"a set with a rank beyond the world", add({0, ranks})},
      {"a set with rank -1", add({-1})},
      {"the removal of the world", [] { remove_process_set(world()); }},
      {"counts of more rows than there are", exchange(std::vector<std::int64_t>(size, 7))},
      {"counts for too many ranks", exchange(std::move(wraps))},
      {"a negative count", exchange(std::move(negative))},
      {"work on a rank beyond the world", [=] { on_one_rank(ranks, [] {}); }},
  };
}

void refused(const Scene& scene) {
  std::vector<float> values(8, 1.0F);
  std::vector<WrongCall> calls = wrong_tensors(values.data(), scene.name);
  for (auto& call : wrong_options(values.data(), scene.name)) calls.push_back(std::move(call));
  for (auto& call : wrong_ranks(values.data(), scene.name, scene.ranks))
    calls.push_back(std::move(call));
  const std::size_t some = 1 + scene.event.variant / 10 % 6;
  for (std::size_t i = 0; i < some; ++i) {
    const WrongCall& wrong = calls[(scene.event.variant / 60 + i * 7) % calls.size()];
    require_throws<InvalidArgument>(wrong.what, wrong.call);
  }
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

/// A name of the maximum length is accepted.
void longest_name(const Scene& scene) {
  std::int64_t value = scene.rank + 1;
  const std::string start = scene.name + " is long ";
  const std::string name = start + std::string(too_long - 1 - start.size(), 'l');
  allreduce(value, {.name = name, .op = ReduceOp::max});
  if (value != scene.ranks) throw Unexpected("a wrong maximum under the longest name");
}

}  // namespace

void wrong_argument(const Scene& scene) {
  if (scene.event.variant % 10 == 9 && scene.ranks > 1) return duplicate(scene);
  if (scene.event.variant % 10 == 8) return longest_name(scene);
  if (scene.is_odd()) refused(scene);
}

}  // namespace kolo::internal::journeys
