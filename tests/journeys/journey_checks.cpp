// SPDX-License-Identifier: Apache-2.0
// The end of an epoch: comparison with the reference, metrics and checkpoints.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "journey.hpp"
#include "kolo/kolo.hpp"

namespace kolo::internal::journeys {
namespace {

std::string difference(const Replica& got, const Replica& wanted) {
  for (std::size_t number = 0; number < got.models.size(); ++number) {
    if (got.scales[number] != wanted.scales[number])
      return "the loss scale is '" + got.scales[number] + "', not '" + wanted.scales[number] + "'";
    for (std::size_t i = 0; i < got.models[number].size(); ++i) {
      const Parameter& a = got.models[number][i];
      const Parameter& b = wanted.models[number][i];
      for (std::size_t j = 0; j < a.values.size(); ++j)
        if (a.values[j] != b.values[j])
          return "model " + std::to_string(number) + " parameter " + std::to_string(i) + "[" +
                 std::to_string(j) + "] is " + std::to_string(a.values[j]) + ", not " +
                 std::to_string(b.values[j]);
      if (a.velocities != b.velocities)
        return "velocities of model " + std::to_string(number) + " parameter " + std::to_string(i);
    }
  }
  return "nothing";
}

bool all_finite(const Replica& replica) {
  for (const ModelState& model : replica.models)
    for (const Parameter& parameter : model)
      for (const auto* values : {&parameter.values, &parameter.velocities})
        if (!std::ranges::all_of(*values, [](float value) { return std::isfinite(value); }))
          return false;
  return true;
}

std::string name_of_hook(std::size_t number) { return "hook " + std::to_string(number); }

}  // namespace

void Journey::end_epoch(const Epoch& epoch) {
  reference_->run(epoch);
  if (program_.is_lossy()) adopt_weights();
  check_weights(epoch);
  if (program_.has(Feature::metrics)) check_metrics(epoch, -1);
  if (program_.has(Feature::plateau)) check_plateau(epoch);
  if (handler_) check_signal();
  ++epoch_;
  if (checkpoints_) save_checkpoint();
  if (program_.has(Feature::rollback) && !rolled_back_ && epoch_ == 3) roll_back();
}

// From all ranks. Only the loss scales are those of the reference.
void Journey::adopt_weights() {
  stage("gathering weights");
  const Replica now = state();
  if (!all_finite(now)) throw Unexpected("weights are not finite");
  std::vector<Replica> replicas(static_cast<std::size_t>(ranks_), now);
  const std::vector<std::string> bytes = allgather(to_bytes(now), {.name = "weights"});
  for (int rank = 0; rank < ranks_; ++rank) {
    Replica& replica = replicas[static_cast<std::size_t>(rank)];
    from_bytes(bytes[static_cast<std::size_t>(rank)], replica);
    replica.scales = reference_->of(rank).scales;
  }
  reference_->set_replicas(std::move(replicas));
}

// Training begins with what it ended with, or with what was saved.
void Journey::check_start() const {
  stage("comparison at the start of an epoch");
  const Replica now = state();
  const Replica& wanted = reference_->of(rank_);
  if (now != wanted) throw Unexpected("at the start of an epoch: " + difference(now, wanted));
}

void Journey::check_weights(const Epoch& epoch) {
  stage("comparison of weights");
  const Replica now = state();
  const Replica& wanted = reference_->of(rank_);
  if (now != wanted)
    throw Unexpected("after epoch " + std::to_string(epoch.number()) + " (visit " +
                     std::to_string(visits_) + "): " + difference(now, wanted));
  for (std::size_t number = 0; number < now.models.size(); ++number) {
    if (!sets_[number].contains(rank_)) continue;
    const std::vector<std::uint64_t> sum{checksum(now.models[number])};
    const Gathered<std::uint64_t> sums = allgather(
        sum, {.name = "checksum " + std::to_string(number), .process_set = sets_[number]});
    if (std::ranges::any_of(sums.values, [&](auto one) { return one != sums.values.front(); }))
      throw Unexpected("ranks differ after epoch " + std::to_string(epoch.number()));
  }
}

// Among the ranks that take this step; -1: after the epoch, among all.
void Journey::check_metrics(const Epoch& epoch, int step) {
  MetricAverage metrics({"loss", "examples"});
  double sum = 0.0;
  double count = 0.0;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (step >= epoch.steps(rank)) continue;
    sum += metric_of(program_, epoch.number(), step, rank) * (rank + 1);
    count += rank + 1;
  }
  metrics.add("loss", metric_of(program_, epoch.number(), step, rank_), rank_ + 1);
  metrics.add("examples", 3.0);
  const auto means = metrics.over_all_ranks();
  if (means.at("loss") != sum / count || means.at("examples") != 3.0)
    throw Unexpected("the mean of a metric is " + std::to_string(means.at("loss")) + ", not " +
                     std::to_string(sum / count));
}

void Journey::check_plateau(const Epoch& epoch) {
  stage("plateau");
  if (!plateau_) {
    plateau_.emplace(ReduceOnPlateauOptions{
        .learning_rate = 1.0, .improvement = {.threshold = 0.0}, .factor = 0.5, .patience = 0});
    best_.reset();
  }
  double sum = 0.0;
  double count = 0.0;
  for (int rank = 0; rank < ranks_; ++rank) {
    sum += metric_of(program_, epoch.number(), -1, rank) * (rank + 1);
    count += rank + 1;
  }
  const bool worse = best_ && sum / count >= *best_;
  const double rate = plateau_->learning_rate();
  const bool reduced = plateau_->update(metric_of(program_, epoch.number(), -1, rank_), rank_ + 1);
  if (!worse) best_ = sum / count;
  if (reduced != worse || plateau_->learning_rate() != (worse ? rate / 2 : rate) ||
      plateau_->best() != best_)
    throw Unexpected("a plateau was judged wrongly");
}

// A later branch has its own steps between those of the first one.
void Journey::save_checkpoint() {
  stage("saving a checkpoint");
  DistributedSampler sampler({.examples = program_.examples, .seed = program_.seed});
  sampler.begin_epoch(epoch_);
  saved_step_ = std::int64_t{epoch_} * 10 + branch_;
  const std::string bytes = to_bytes(state());
  NamedViews parts{{"state", bytes}, {"sampler", sampler.state()}};
  NamedViews per_rank{{"state", bytes}};
  for (std::size_t number = 0; number < hooks_.size(); ++number) {
    if (!hooks_[number]) continue;
    parts[name_of_hook(number)] = hooks_[number]->state();
    per_rank[name_of_hook(number)] = hooks_[number]->per_rank_state();
  }
  const CheckpointExtras extras{.metric = static_cast<double>(saved_step_), .per_rank = per_rank};
  const bool aside = (saved_step_ + program_.examples) % 2 == 0;
  const std::filesystem::path path =
      aside ? checkpoints_->save_async(saved_step_, parts, extras).value()
            : checkpoints_->save(saved_step_, parts, extras);
  if (first_saved_.empty()) first_saved_ = path;
  const auto found = checkpoints_->load_latest();
  if (!found || found->step != saved_step_)
    throw Unexpected("the latest checkpoint is of step " +
                     (found ? std::to_string(found->step) : "none") + " after one was saved at " +
                     std::to_string(saved_step_));
  if (found->per_rank_part("state").text() != bytes)
    throw Unexpected("a checkpoint has other bytes");
  returned_ = false;
}

void Journey::load_checkpoint(const Checkpoint& found) {
  DistributedSampler sampler({.examples = program_.examples, .seed = program_.seed});
  sampler.load_state(found.part("sampler"));
  Replica replica = state();
  const bool same = found.ranks == ranks_;
  if (same == found.per_rank.empty()) throw Unexpected("a checkpoint has wrong parts of its own");
  from_bytes(same ? found.per_rank_part("state") : found.part("state"), replica);
  set_state(replica);
  if (sampler.epoch() != found.step / 10) throw Unexpected("a sampler is in another epoch");
  load_hooks(found, same);
}

void Journey::load_hooks(const Checkpoint& found, bool per_rank) {
  for (std::size_t number = 0; number < hooks_.size(); ++number) {
    if (!hooks_[number]) continue;
    const std::string name = name_of_hook(number);
    hooks_[number]->load_state(found.part(name));
    if (per_rank) hooks_[number]->load_per_rank_state(found.per_rank_part(name));
    if (hooks_[number]->state() != found.part(name) ||
        (per_rank && hooks_[number]->per_rank_state() != found.per_rank_part(name)))
      throw Unexpected("a hook has another state than its checkpoint");
  }
}

void Journey::resume() {
  stage("resuming from a checkpoint");
  const auto found = checkpoints_->load_latest();
  if (found.has_value() != (saved_step_ >= 0)) throw Unexpected("a checkpoint is missing");
  if (!found) return;
  if (found->step != saved_step_)
    throw Unexpected("resumed from step " + std::to_string(found->step) + ", not from " +
                     std::to_string(saved_step_));
  set_state(random_replica(program_, rank_ + 3, ranks_));  // what was in memory is lost
  // Until the new branch is saved, the latest checkpoint is of the abandoned one.
  load_checkpoint(returned_ ? first_checkpoint() : *found);
}

// It has the best metric, so it is always there.
Checkpoint Journey::first_checkpoint() {
  const Checkpoint found =
      program_.seed % 2 == 0 ? checkpoints_->load_best().value() : Checkpointer::load(first_saved_);
  if (found.step != 10)
    throw Unexpected("the best checkpoint is of step " + std::to_string(found.step));
  return found;
}

void Journey::roll_back() {
  stage("rolling back");
  rolled_back_ = true;
  returned_ = true;
  const Checkpoint found = first_checkpoint();
  epoch_ = static_cast<int>(found.step / 10);
  ++branch_;
  load_checkpoint(found);
  std::vector<Replica> replicas = at_start_of_.at(epoch_);
  // On another number of ranks all have rank 0's part.
  if (found.ranks != ranks_)
    replicas.assign(static_cast<std::size_t>(ranks_), Replica(replicas.front()));
  reference_->set_replicas(std::move(replicas));
}

}  // namespace kolo::internal::journeys
