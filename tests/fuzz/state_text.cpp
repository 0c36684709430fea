// SPDX-License-Identifier: Apache-2.0
// The text in checkpoints of the states of samplers and similar objects.
#include "training/state_text.hpp"

#include <cmath>

#include "kolo/error.hpp"
#include "kolo/training/early_stopping.hpp"
#include "kolo/training/learning_rate.hpp"
#include "kolo/training/metrics.hpp"
#include "kolo/training/sampler.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

DistributedSampler make_sampler() {
  return DistributedSampler({.examples = 10, .rank = 1, .ranks = 3, .seed = 7});
}
ReduceOnPlateau make_plateau() { return ReduceOnPlateau({.learning_rate = 0.1}); }
EarlyStopping make_stopping() { return EarlyStopping({}); }
MetricAverage make_metrics() { return MetricAverage({"loss", "accuracy"}); }

/// After an object has loaded a state, its own state is the same.
template <typename Make>
bool loads(Make make, const std::string& text) {
  auto first = make();
  try {
    first.load_state(text);
  } catch (const InvalidArgument&) {
    require(first.state() == make().state(), "a state that was refused changed something");
    return false;
  }
  auto second = make();
  second.load_state(first.state());
  require(second.state() == first.state(), "a state is another one when it is loaded again");
  return true;
}

/// A sampler that has loaded a state stays within its data set.
bool sampler_loads(const std::string& text) {
  if (!loads(make_sampler, text)) return false;
  DistributedSampler sampler = make_sampler();
  sampler.load_state(text);
  const std::int64_t steps = sampler.steps_left(2);
  require(steps >= 0 && sampler.indices().size() <= 4, "a sampler gives more than there is");
  sampler.advance(2);
  require(sampler.consumed() <= 10, "a sampler goes beyond the end");
  return true;
}

bool run(Bytes bytes) {
  const std::string text(as_text(bytes));
  const bool any = sampler_loads(text);
  return loads(make_plateau, text) || loads(make_stopping, text) || loads(make_metrics, text) ||
         any;
}

std::vector<Seed> seeds() {
  DistributedSampler sampler = make_sampler();
  sampler.begin_epoch(3);
  sampler.advance(2);
  MetricAverage metrics = make_metrics();
  metrics.add("loss", 0.3, 17);
  return {{"sampler", make_sampler().state()},
          {"sampler-under-way", sampler.state()},
          {"plateau", make_plateau().state()},
          {"plateau-under-way", "kolo.plateau.1 1 0x1.8p-3 0x1p-7 2 1"},
          {"stopping", make_stopping().state()},
          {"stopping-under-way", "kolo.early_stopping.1 1 -inf 3 1"},
          {"metrics", make_metrics().state()},
          {"metrics-under-way", metrics.state()}};
}

}  // namespace

const Target state_text_target{.name = "state_text", .max_bytes = 128, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
