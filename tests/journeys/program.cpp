// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <algorithm>
#include <numeric>

#include "support/random.hpp"

namespace kolo::internal::journeys {
namespace {

using campaign::hash;
using campaign::Random;

// Each part of a program has its own stream: a program without one feature is otherwise the same.
enum class Stream : std::uint64_t { features = 1, shape, models, sets, events };

Random random_for(std::uint64_t seed, Stream stream, std::uint64_t more = 0) {
  return Random(hash({seed, static_cast<std::uint64_t>(stream), more}));
}

constexpr auto first_setting = static_cast<std::size_t>(Feature::long_names);

bool needs_others(Feature feature) {
  switch (feature) {
    case Feature::uneven:
    case Feature::set_optimizer:
    case Feature::optimizer_per_set:
    case Feature::fewer_ranks:
    case Feature::more_ranks:
    case Feature::mismatch:
    case Feature::stopped:
    case Feature::callback_exception:
    case Feature::departure:
    case Feature::killed:
    case Feature::hosts_of_one:
    case Feature::hosts_of_two:
    case Feature::polled: return true;
    default: return false;
  }
}

Features draw_features(std::uint64_t seed, int ranks, bool kill) {
  Random random = random_for(seed, Stream::features);
  Features features;
  // Few programs kill, so they have more of the other features.
  for (int i = kill ? random.between(10, 22) : random.between(1, 14); i > 0; --i)
    features.add(static_cast<Feature>(random.below(first_setting)));
  for (std::size_t i = first_setting; i < feature_names.size(); ++i)
    if (random.once_in(kill ? 2 : 4)) features.add(static_cast<Feature>(i));
  if (features.has(Feature::hosts_of_one) && features.has(Feature::hosts_of_two))
    features.remove(random.once_in(2) ? Feature::hosts_of_one : Feature::hosts_of_two);
  if (features.has(Feature::fewer_ranks) && features.has(Feature::more_ranks))
    features.remove(random.once_in(2) ? Feature::fewer_ranks : Feature::more_ranks);
  for (std::size_t i = 0; i < feature_names.size(); ++i)
    if (ranks == 1 && needs_others(static_cast<Feature>(i)))
      features.remove(static_cast<Feature>(i));
  if (features.has(Feature::no_sync) && features.has(Feature::every_pass))
    features.remove(random.once_in(2) ? Feature::no_sync : Feature::every_pass);
  return features;
}

// Adds the features that other features need, so that they are counted too, and removes features
// that exclude each other.
void complete(Program& program) {
  Features& features = program.features;
  for (const Feature feature :
       {Feature::hook_exception, Feature::no_sync, Feature::every_pass, Feature::set_to_none,
        Feature::module_gradients, Feature::checkpointed, Feature::replaced, Feature::unfrozen,
        Feature::expanded, Feature::jit, Feature::fully_sharded})
    if (!program.torch) features.remove(feature);
  if (program.torch) features.remove(Feature::token);
  if (features.has(Feature::no_sync) || features.has(Feature::every_pass))
    features.add(Feature::accumulation);
  // Without a rank that has joined, its parts stay as they are.
  if (features.has(Feature::sharded)) {
    features.remove(Feature::uneven);
    features.remove(Feature::module_gradients);
  }
  // Like a sharded optimizer; it wraps no optimizer, and has no hooks and groups.
  if (features.has(Feature::fully_sharded))
    for (const Feature feature :
         {Feature::uneven, Feature::sharded, Feature::module_gradients, Feature::jit,
          Feature::replaced, Feature::unfrozen, Feature::expanded, Feature::shared_memory,
          Feature::groups, Feature::communication_hook, Feature::int8, Feature::power_sgd})
      features.remove(feature);
  // The layers of a jit module stay as they are. The momentum of shards would be lost.
  if (features.has(Feature::jit) || features.has(Feature::sharded))
    features.remove(Feature::replaced);
  if (features.has(Feature::expanded)) features.add(Feature::unused_parameters);
  // An optimizer has one hook.
  if (features.has(Feature::int8) && features.has(Feature::power_sgd))
    features.remove(program.seed % 2 == 0 ? Feature::int8 : Feature::power_sgd);
  if (program.is_lossy()) features.remove(Feature::communication_hook);
  if (features.has(Feature::rollback) || features.has(Feature::resume) ||
      features.has(Feature::fewer_ranks) || features.has(Feature::more_ranks))
    features.add(Feature::checkpoints);
  if (features.has(Feature::fewer_ranks) || features.has(Feature::more_ranks))
    features.add(Feature::resume);
  if (features.has(Feature::resume)) features.add(Feature::reopened);
}

void draw_shape(Program& program, const Limits& limits) {
  Random random = random_for(program.seed, Stream::shape);
  program.epochs = std::min(random.between(1, 4), limits.epochs);
  program.max_steps = std::min(random.one_of({1, 2, 4, 8, 14}), limits.steps);
  program.passes = random.between(2, 3);
  program.last_passes = random.between(1, program.passes);
  program.batch = random.between(1, 3);
  program.examples = random.between(1, 60);
  program.fewer = program.ranks > 1 ? random.between(1, program.ranks - 1) : 1;
  const int change = random.between(1, 3);
  const int rollback = random.between(1, 3);
  if (!program.has(Feature::accumulation)) program.passes = program.last_passes = 1;
  if (program.has(Feature::compression)) program.batch = 1;  // so that sums have at most 8 bits
  const bool changes = program.has(Feature::reopened) || program.has(Feature::rollback);
  if (changes) program.epochs = std::max(program.epochs, std::min(2, limits.epochs));
  if (program.has(Feature::rollback))
    program.epochs = std::max(program.epochs, std::min(3, limits.epochs));
  if (limits.steps < program.examples) program.examples = limits.steps * program.batch;
  program.change_epoch = std::min(change, program.epochs - 1);
  program.rollback_epoch = std::min(rollback, program.epochs - 2);
}

void draw_events(Program& program) {
  const auto draw = [&](Feature feature, Incident incident, int most) {
    if (!program.has(feature)) return;
    Random random = random_for(program.seed, Stream::events, static_cast<std::uint64_t>(feature));
    for (int i = random.between(1, most); i > 0; --i) {
      Event event{.incident = incident};
      event.epoch = random.between(0, program.epochs - 1);
      event.step = random.between(0, 13) % program.max_steps;
      event.odd = random.between(0, program.ranks - 1);
      event.variant = random.below(1U << 30U);
      program.events.push_back(event);
    }
  };
  draw(Feature::mismatch, Incident::mismatch, 3);
  draw(Feature::wrong_argument, Incident::wrong_argument, 4);
  draw(Feature::forward_exception, Incident::forward_exception, 3);
  draw(Feature::hook_exception, Incident::hook_exception, 3);
  draw(Feature::fork, Incident::fork, 2);
  draw(Feature::pending_future, Incident::pending_future, 2);
  draw(Feature::stopped, Incident::stopped, 2);
  draw(Feature::many_names, Incident::many_names, 1);
  draw(Feature::set_churn, Incident::set_churn, 1);
  draw(Feature::callback_exception, Incident::callback_exception, 1);
  draw(Feature::departure, Incident::departure, 1);
}

std::vector<int> first_ranks(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<std::vector<int>> divided(Random& random, int ranks) {
  std::vector<int> all = first_ranks(ranks);
  random.shuffle(all);
  const int first = random.between(1, ranks);
  std::vector<std::vector<int>> sets{{all.begin(), all.begin() + first}};
  if (first < ranks) sets.emplace_back(all.begin() + first, all.end());
  for (std::vector<int>& set : sets) std::ranges::sort(set);
  return sets;
}

void draw_groups(Random& random, const Program& program, Model& model) {
  const bool by_number = random.once_in(2);
  const int number = random.between(1, 3);
  std::vector<int> group = first_ranks(static_cast<int>(model.sizes.size()));
  random.shuffle(group);
  group.resize(1 + random.below(group.size()));
  if (!program.has(Feature::groups)) return;
  if (by_number) model.num_groups = number;
  if (!by_number) model.groups = {group};
}

Model draw_model(const Program& program, std::uint64_t number) {
  Random random = random_for(program.seed, Stream::models, number);
  Model model;
  const int parameters = random.between(1, 6);
  for (int i = 0; i < parameters; ++i) {
    const int large = random.once_in(60) ? 70000 : random.once_in(8) ? 5000 : 40;
    model.sizes.push_back(random.between(1, large));
    // The last parameter is always trained, so that a step never has nothing to do.
    const bool last = i == parameters - 1;
    model.frozen.push_back(random.once_in(2) && !last && program.has(Feature::frozen_parameters));
    model.sometimes_unused.push_back(random.once_in(2) && program.has(Feature::unused_parameters));
    model.shared.push_back(random.once_in(2) && program.has(Feature::shared_parameters));
  }
  model.op = random.one_of({ReduceOp::average, ReduceOp::sum});
  model.accumulation = random.one_of({Accumulation::sum, Accumulation::mean});
  model.momentum = random.one_of({0.0, 0.5});
  const Compression compression = random.one_of({Compression::fp16, Compression::bf16});
  if (program.has(Feature::compression)) model.compression = compression;
  const double predivide = random.one_of({1.0, 1.0, 2.0, 0.5});
  if (model.op == ReduceOp::average) model.predivide = predivide;
  // Ranks with fewer steps may have fewer passes in their last step: not each can be reduced.
  const bool may_differ = model.accumulation == Accumulation::sum && program.has(Feature::uneven);
  const bool every_pass = program.has(Feature::every_pass) && !may_differ;
  const bool is_divided = program.has(Feature::fully_sharded);
  model.passes_per_step =
      every_pass || is_divided || program.has(Feature::no_sync) ? 1 : program.passes;
  draw_groups(random, program, model);
  return model;
}

}  // namespace

std::vector<Model> Program::models(int session_ranks) const {
  std::vector<Model> all;
  const auto add = [&](std::uint64_t number) -> Model& {
    all.push_back(draw_model(*this, number));
    all.back().sets = {first_ranks(session_ranks)};
    return all.back();
  };
  Random random = random_for(seed, Stream::sets, static_cast<std::uint64_t>(session_ranks));
  const std::vector<std::vector<int>> parts = divided(random, session_ranks);
  const std::vector<std::vector<int>> some = divided(random, session_ranks);
  Model& first = add(0);
  if (has(Feature::optimizer_per_set)) {
    first.sets = parts;
    first.whole_world = false;
  }
  if (has(Feature::two_optimizers)) add(1);
  if (has(Feature::set_optimizer)) {
    Model& last = add(2);
    last.sets = {some.front()};
    last.whole_world = false;
  }
  // A scale is that of the ranks that train its models.
  const auto world = std::ranges::find(all, true, &Model::whole_world) - all.begin();
  for (std::size_t number = 0; number < all.size(); ++number)
    all[number].scale = all[number].whole_world ? static_cast<std::size_t>(world) : number;
  return all;
}

// Sums of 2-byte gradients, up to 3456 and twice that with a predivide factor, stay below fp16's
// maximum, and the squares of hooks below f32's.
LossScaleOptions scale_options(const Program& program) {
  const bool grows = !program.has(Feature::compression) && !program.is_lossy();
  return {.initial = static_cast<double>(1 << program.seed % 3),
          .growth_factor = 2.0,
          .backoff_factor = 0.5,
          .growth_interval = grows ? 2 + static_cast<std::int64_t>(program.seed % 3) : 1000};
}

Program make_program(std::uint64_t seed, int ranks, bool torch, const Limits& limits) {
  Program program{.seed = seed, .ranks = ranks, .torch = torch};
  program.features = limits.only ? *limits.only : draw_features(seed, ranks, limits.kill);
  for (std::size_t i = 0; i < feature_names.size(); ++i)
    if (limits.with.has(static_cast<Feature>(i))) program.features.add(static_cast<Feature>(i));
  program.features.remove(Feature::killed);
  if (limits.kill) program.features.add(Feature::killed);
  // Without sockets, nothing tells that a process of another host is dead.
  if (limits.kill) program.features.remove(Feature::polled);
  for (std::size_t i = 0; i < feature_names.size(); ++i) {
    const auto feature = static_cast<Feature>(i);
    if (limits.without.has(feature) || (ranks == 1 && needs_others(feature)))
      program.features.remove(feature);
  }
  complete(program);
  for (std::size_t i = 0; i < feature_names.size(); ++i)
    if (limits.without.has(static_cast<Feature>(i)))
      program.features.remove(static_cast<Feature>(i));
  complete(program);
  draw_shape(program, limits);
  draw_events(program);
  return program;
}

}  // namespace kolo::internal::journeys
