// SPDX-License-Identifier: Apache-2.0
#include "journey.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "incidents.hpp"
#include "kolo/kolo.hpp"
#include "support/german_numbers.hpp"

namespace kolo::internal::journeys {
namespace {

/// Reports an exception before it meets a destructor that waits for other ranks.
void guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (const Departure&) {
    throw;
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception of an unknown type");
  }
}

}  // namespace

Journey::Journey(const Program& program, int rank, Maker maker, std::filesystem::path directory)
    : program_(program), rank_(rank), maker_(std::move(maker)) {
  if (program.has(Feature::checkpoints))
    checkpoints_.emplace(CheckpointerOptions{.directory = std::move(directory),
                                             .keep_last = 1 + static_cast<int>(program.seed % 3)});
  for (int other = 0; other < program.ranks; ++other)
    everybody_.push_back(random_replica(program, other, program.ranks));
  mine_ = everybody_[static_cast<std::size_t>(rank)];
}

void Journey::stage(const std::string& what) const {
  set_stage("epoch " + std::to_string(epoch_) + ", visit " + std::to_string(visits_) + ": " + what);
}

void Journey::run() {
  while (epoch_ < program_.epochs) {
    const bool waits = rank_ >= program_.session_ranks(false);
    if (program_.has(Feature::reopened) && !changed_ &&
        (waits || epoch_ >= program_.change_epoch)) {
      changed_ = true;
      if (program_.has(Feature::more_ranks)) take_in();
    }
    const int ranks = program_.session_ranks(changed_);
    if (rank_ >= ranks) return;
    run_session(ranks);
  }
  check_kept();
}

void Journey::run_session(int ranks) {
  stage("start of a session");
  set_variables(program_);
  std::optional<GermanNumbers> german;
  if (program_.has(Feature::locales) && rank_ % 2 == 1) german.emplace();
  const std::ptrdiff_t descriptors = open_descriptors();
  try {
    const OpenSession session(program_, ranks);
    guarded([&] { train(ranks); });
    trainers_.clear();
    stage("end of a session");
  } catch (const Departure&) {
    trainers_.clear();
    restart_epoch();
  }
  check_after_session(descriptors);
}

void Journey::train(int ranks) {
  if (kolo::size() != ranks || kolo::rank() != rank_) throw Unexpected("a wrong rank or size");
  const bool others = ranks_ != 0 && ranks != ranks_;
  ranks_ = ranks;
  // On another number of ranks all start from rank 0's state.
  if (others || static_cast<int>(everybody_.size()) != ranks) {
    const Replica first = everybody_.front();
    everybody_.assign(static_cast<std::size_t>(ranks), first);
    mine_ = first;
  }
  if (program_.has(Feature::record_signal) && !handler_) handler_.emplace();
  make_trainers();
  if (program_.has(Feature::kept_future)) keep_future();
  if (program_.has(Feature::resume) && changed_) resume();
  start_trainers();
  const bool until_change = program_.has(Feature::reopened) && !changed_;
  while (epoch_ < (until_change ? program_.change_epoch : program_.epochs)) {
    everybody_ = reference_->replicas();
    at_start_of_[epoch_] = everybody_;
    ++visits_;
    if (program_.is_lossy()) check_start();
    const Epoch epoch(program_, ranks_, epoch_, branch_);
    if (!run_epoch(epoch)) return restart_epoch();
    end_epoch(epoch);
  }
  mine_ = state();
  everybody_ = reference_->replicas();
}

// After the session has ended within it.
void Journey::restart_epoch() {
  everybody_ = at_start_of_.at(epoch_);
  mine_ = everybody_[static_cast<std::size_t>(rank_)];
}

void Journey::make_trainers() {
  stage("making optimizers");
  trainers_.clear();
  sets_.clear();
  scalers_.clear();
  hooks_.clear();
  reference_ = std::make_unique<Reference>(program_, ranks_, everybody_);
  for (std::size_t number = 0; number < reference_->models().size(); ++number) {
    const Model& model = reference_->models()[number];
    ProcessSet set;
    for (std::size_t i = 0; !model.whole_world && i < model.sets.size(); ++i) {
      const ProcessSet added = add_process_set(model.sets[i]);
      if (i == 0 || added.contains(rank_)) set = added;
    }
    sets_.push_back(set);
    scalers_.push_back(!program_.has(Feature::loss_scale) ? nullptr
                       : model.scale == number            ? maker_.scaler(program_)
                                                          : scalers_[model.scale]);
    hooks_.push_back(make_hook(program_));
    trainers_.push_back(maker_.trainer({.program = program_,
                                        .model = model,
                                        .number = number,
                                        .rank = rank_,
                                        .set = set,
                                        .hook = hooks_.back(),
                                        .scaler = scalers_.back()}));
  }
  set_state(mine_);
  plateau_.reset();
}

void Journey::start_trainers() {
  stage("broadcast at the start");
  for (std::size_t number = 0; number < trainers_.size(); ++number)
    if (sets_[number].contains(rank_)) broadcast_model(number, sets_[number].ranks().front());
  reference_->start();
}

void Journey::broadcast_model(std::size_t number, int root) {
  trainers_[number]->broadcast(root);
  if (!program_.has(Feature::loss_scale) || reference_->models()[number].scale != number) return;
  std::string scale = scalers_[number]->state();
  kolo::broadcast(scale, root, {.name = "loss scale", .process_set = sets_[number]});
  scalers_[number]->load_state(scale);
}

bool Journey::run_epoch(const Epoch& epoch) {
  if (epoch.loses_examples()) throw Unexpected("the samplers' shares are not the data");
  SideThreads side(program_, " of visit " + std::to_string(visits_), rank_, ranks_);
  bool complete = true;
  guarded([&] {
    const int steps = epoch.steps(rank_);
    for (int step = 0; complete && step < std::max(steps, 1); ++step) {
      complete = run_events(epoch, step);
      if (complete && step < steps) run_step(epoch, step);
    }
    if (!complete) return;
    stage("other threads");
    side.finish();
    if (program_.has(Feature::uneven)) join_all(epoch);
  });
  return complete;
}

bool Journey::run_events(const Epoch& epoch, int step) {
  for (std::size_t i = 0; i < program_.events.size(); ++i) {
    const Event& event = program_.events[i];
    if (event.epoch != epoch.number() || step_of(event, epoch) != step || over_.contains(i))
      continue;
    if (event.ends_session() && ranks_ == 1) continue;
    const std::string name = "event " + std::to_string(i) + " of visit " + std::to_string(visits_);
    stage(name + " before step " + std::to_string(step));
    if (event.ends_session()) over_.insert(i);
    if (event.incident == Incident::hook_exception) run_hooks(epoch, step, event);
    run_incident({.program = program_,
                  .event = event,
                  .name = name,
                  .rank = rank_,
                  .ranks = ranks_,
                  .helpers = helpers_});
    if (event.ends_session()) return false;
  }
  return true;
}

// One rank or all throw in backward, and all give the step up.
void Journey::run_hooks(const Epoch& epoch, int step, const Event& event) {
  if (step >= epoch.fewest_steps()) return;
  for (const auto& trainer : trainers_) {
    trainer->zero_gradients();
    if (trainer->throw_in_hook(event)) trainer->zero_gradients();
  }
}

void Journey::run_step(const Epoch& epoch, int step) {
  stage("step " + std::to_string(step));
  if (program_.has(Feature::metrics)) check_metrics(epoch, step);
  if (fails(program_, epoch, step)) return;
  ++steps_;
  // Either one optimizer after the other, or backward of all before the first step.
  const bool together = program_.steps_together();
  for (std::size_t number = 0; number < trainers_.size(); ++number) {
    backward(epoch, step, number);
    if (!together) finish_step(epoch, step, number);
  }
  for (std::size_t number = 0; together && number < trainers_.size(); ++number)
    finish_step(epoch, step, number);
  if (!program_.has(Feature::loss_scale) || epoch.skipped(step)) return;
  for (std::size_t number = 0; number < trainers_.size(); ++number)
    if (reference_->models()[number].scale == number) scalers_[number]->update();
}

void Journey::backward(const Epoch& epoch, int step, std::size_t number) {
  const int passes = epoch.passes(step, rank_, reference_->models()[number].accumulation);
  trainers_[number]->zero_gradients();
  // Batches come from another thread.
  BackgroundLoader<std::vector<std::int64_t>> batches(
      passes,
      [&](std::int64_t pass) { return epoch.examples(step, static_cast<int>(pass), rank_); },
      {.threads = program_.has(Feature::sampler) ? 1 : 0});
  for (int pass = 0; pass < passes; ++pass)
    trainers_[number]->backward(
        {.epoch = epoch, .step = step, .number = pass, .examples = batches.next().value()});
}

void Journey::finish_step(const Epoch& epoch, int step, std::size_t number) {
  Trainer& trainer = *trainers_[number];
  const bool skipped = epoch.skipped(step);
  // A step may be given up before or after all gradients are reduced.
  if (skipped ? (program_.seed + static_cast<std::uint64_t>(step)) % 2 == 0
              : program_.has(Feature::clipping))
    trainer.synchronize();
  if (skipped) return trainer.discard();
  if (program_.has(Feature::clipping)) trainer.clip(max_norm_of(program_));
  trainer.step(epoch.learning_rate(step));
}

void Journey::join_all(const Epoch& epoch) {
  stage("join");
  const int last = join();
  // All ranks take part in each step of the first optimizer that is not given up.
  bool later_steps = false;
  for (int step = epoch.steps(last); step < epoch.most_steps(); ++step)
    later_steps = later_steps || !fails(program_, epoch, step);
  if (reference_->models().front().whole_world && later_steps)
    throw Unexpected("rank " + std::to_string(last) + " cannot be the last to join");
  stage("broadcast after join");
  for (std::size_t number = 0; number < trainers_.size(); ++number)
    if (sets_[number].contains(rank_))
      broadcast_model(number, epoch.last_rank(sets_[number].ranks()));
}

Replica Journey::state() const {
  Replica replica;
  for (const auto& trainer : trainers_) replica.models.push_back(trainer->state());
  for (std::size_t number = 0; number < scalers_.size(); ++number) {
    const bool owner = scalers_[number] && reference_->models()[number].scale == number;
    replica.scales.push_back(owner ? scalers_[number]->state() : "");
  }
  return replica;
}

void Journey::set_state(const Replica& replica) {
  for (std::size_t number = 0; number < trainers_.size(); ++number)
    trainers_[number]->set_state(replica.models[number]);
  for (std::size_t number = 0; number < scalers_.size(); ++number)
    if (!replica.scales[number].empty()) scalers_[number]->load_state(replica.scales[number]);
}

}  // namespace kolo::internal::journeys
