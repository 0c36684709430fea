// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <span>
#include <utility>

#include "memory.hpp"
#include "random.hpp"
#include "sampling.hpp"

namespace gpt {
namespace {

std::size_t training_size(const std::string& text) { return text.size() / 10 * 9; }

// The learning rate falls from the peak to a tenth of it along half a cosine. The peak applies to
// the whole batch of a step, over all ranks and passes, so it does not depend on the number of
// ranks.
kolo::LearningRateSchedule make_schedule(const Options& options) {
  const auto steps = static_cast<double>(std::max<std::int64_t>(options.steps, 1));
  return kolo::LearningRateSchedule(
      {.peak = options.learning_rate,
       .warmup_from = options.learning_rate / static_cast<double>(options.warmup + 1),
       .warmup = static_cast<double>(options.warmup),
       .multiplier =
           [steps](double step) {
             const double done = std::min(step / steps, 1.0);
             return 0.55 + 0.45 * std::cos(std::numbers::pi * done);
           },
       .staircase = false});
}

// KOLO: gradients of several passes accumulate locally; their mean is averaged over the ranks.
Optimizer make_optimizer(AdamW& adamw, const Options& options) {
  if (options.fully_sharded) return std::monostate();
  const kolo::DistributedOptimizerOptions distributed{
      .compression = options.compression,
      .backward_passes_per_step = options.accumulate,
      .accumulation = kolo::Accumulation::mean};
  if (!options.sharding) {
    adamw.make_state(adamw.whole());
    return kolo::DistributedOptimizer(adamw, distributed);
  }
  kolo::ShardedOptimizer sharded(adamw, distributed, *options.sharding);
  adamw.make_state(sharded.shards());
  return sharded;
}

// KOLO: initial values are made one unit at a time, so that no rank ever has the whole network.
std::optional<kolo::ShardedModel> make_model(const Layout& layout, const Options& options) {
  if (!options.fully_sharded) return std::nullopt;
  Initializer initializer(layout, options.seed);
  const auto fill = [&](std::size_t unit, std::span<const kolo::TensorView> parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      initializer.fill(unit > 0 ? unit : i * (layout.pieces.size() - 1),
                       std::span(static_cast<float*>(parameters[i].data()),
                                 static_cast<std::size_t>(parameters[i].elements())));
  };
  return std::optional<kolo::ShardedModel>(
      std::in_place, units_of(layout), fill,
      kolo::ShardedModelOptions{.compression = options.compression});
}

}  // namespace

Trainer::Trainer(const Options& options, std::string text)
    : options_(options),
      text_(std::move(text)),
      layout_(options_.network),
      train_(std::span(text_).first(training_size(text_)), options_.network.context),
      validation_(std::span(text_).subspan(training_size(text_)), options_.network.context),
      model_(make_model(layout_, options_)),
      adamw_(model_ ? AdamW(layout_, *model_) : AdamW(layout_)),
      optimizer_(make_optimizer(adamw_, options_)),
      network_(options_.network, layout_),
      // KOLO: every rank trains on its share of the windows, a new share each epoch.
      sampler_({.examples = train_.count(), .seed = options_.seed}),
      learning_rate_(make_schedule(options_)),
      metrics_({"loss"}),
      reported_(std::chrono::steady_clock::now()) {
  const std::int64_t needed = options_.batch_size * options_.accumulate * kolo::size();
  if (train_.count() < needed || validation_.count() < 1)
    throw kolo::Error(fmt::format("the text of {} bytes is too short: a step takes {} windows",
                                  text_.size(), needed));
  if (!model_) {
    initialize(adamw_.parameter_memory(), layout_, options_.seed);
    // KOLO: all ranks start from rank 0's parameters.
    kolo::broadcast_parameters(adamw_.parameters(), /*root=*/0);
  }
  if (!options_.checkpoints.empty()) {
    checkpoints_.emplace(kolo::CheckpointerOptions{.directory = options_.checkpoints});
    resume();
  }
  windows_ = sampler_.indices();
  reported_step_ = step_;
}

// KOLO: rank 0 reads the file; every rank gets its contents.
void Trainer::resume() {
  const std::optional<kolo::Checkpoint> found = checkpoints_->load_latest();
  if (!found) return;
  adamw_.load(*found);
  sampler_.load_state(found->part("sampler"));
  step_ = found->step;
  if (!found->per_rank.empty()) metrics_.load_state(found->per_rank_part("loss"));
  if (kolo::rank() == 0) fmt::print("going on from '{}'\n", found->path.string());
}

void Trainer::save(double validation_loss) {
  if (!checkpoints_) return;
  // KOLO: whole, so that any number of ranks can resume.
  const kolo::NamedStates whole = adamw_.state();
  kolo::NamedViews parts(whole.begin(), whole.end());
  parts["sampler"] = sampler_.state();
  checkpoints_->save(step_, parts,
                     {.metric = validation_loss, .per_rank = {{"loss", metrics_.state()}}});
}

double Trainer::run() {
  const std::int64_t end =
      options_.stop_at > 0 ? std::min(options_.stop_at, options_.steps) : options_.steps;
  std::optional<double> loss;
  while (step_ < end) {
    train_step();
    loss.reset();
    if (step_ % options_.log_every == 0) report();
    // KOLO: all ranks stop after the same step, for example if a scheduler takes the nodes away.
    const bool stops = checkpoints_ && kolo::stop_requested();
    if (stops || step_ % options_.validate_every == 0 || step_ == end) {
      loss = validate();
      save(*loss);
    }
    if (stops) break;
  }
  return loss ? *loss : validate();
}

void Trainer::train_step() {
  begin_epoch_if_due();
  std::visit([this](auto& optimizer) { train_step(optimizer); }, optimizer_);
  ++step_;
}

void Trainer::train_step(auto& optimizer) {
  adamw_.clear_gradients();
  for (int pass = 1; pass <= options_.accumulate; ++pass) {
    const Batch batch = next_batch();
    const float* parameters = adamw_.parameter_memory().data();
    const double loss = network_.forward(parameters, batch);
    // KOLO: in the last pass, a block's gradients are reduced while backward computes the next
    // ones.
    network_.backward(parameters, adamw_.gradient_memory().data(),
                      [&](const std::string& piece) { optimizer.ready(piece); });
    if (pass < options_.accumulate) optimizer.end_pass();  // KOLO: nothing is sent yet
    metrics_.add("loss", loss, static_cast<double>(batch.targets.size()));
  }
  // KOLO: the norm is that of all ranks' averaged gradients, equal on all ranks, so all ranks clip
  // equally and skip the same steps.
  kolo::ReducedGradients reduced = optimizer.reduce();
  if (!may_step(optimizer.clip_grad_norm(reduced, options_.clip))) return;
  adamw_.set_learning_rate(learning_rate_(step_));
  optimizer.step(std::move(reduced));
}

// KOLO: layers are gathered while forward and backward use them. Each pass reduces its gradients,
// so that no rank ever has those of the whole network.
void Trainer::train_step(std::monostate& /*none*/) {
  model_->zero_gradients();
  for (int pass = 1; pass <= options_.accumulate; ++pass) {
    const Batch batch = next_batch();
    auto forward = model_->begin_forward();
    const double loss = network_.forward(ShardedMemory(forward), batch);
    forward.end();
    auto backward = model_->begin_backward();
    network_.backward(ShardedMemory(backward));
    backward.end();
    metrics_.add("loss", loss, static_cast<double>(batch.targets.size()));
  }
  for (const kolo::NamedTensor& gradient : model_->gradients())
    for (std::int64_t i = 0; i < gradient.tensor.elements(); ++i)
      static_cast<float*>(gradient.tensor.data())[i] /= static_cast<float>(options_.accumulate);
  if (!may_step(model_->clip_grad_norm(options_.clip))) return;
  adamw_.set_learning_rate(learning_rate_(step_));
  adamw_.step();
}

bool Trainer::may_step(double norm) const {
  if (std::isfinite(norm)) return true;
  if (kolo::rank() == 0) fmt::print("step {}: skipped, the norm is {}\n", step_ + 1, norm);
  return false;
}

// Skips the end of an epoch after its last full step, so that an epoch has the same steps for any
// number of ranks with the same number of passes per step in total.
void Trainer::begin_epoch_if_due() {
  const std::size_t left = windows_.size() - next_window_;
  if (left >= static_cast<std::size_t>(options_.batch_size * options_.accumulate)) return;
  sampler_.begin_epoch(sampler_.epoch() + 1);
  windows_ = sampler_.indices();
  next_window_ = 0;
}

Batch Trainer::next_batch() {
  const auto size = static_cast<std::size_t>(options_.batch_size);
  const std::span<const std::int64_t> chosen(windows_.data() + next_window_, size);
  next_window_ += size;
  sampler_.advance(options_.batch_size);
  return train_.batch(chosen);
}

// KOLO: each rank evaluates its share; all windows count equally, however they are shared.
double Trainer::validate() {
  const kolo::DistributedSampler sampler(
      {.examples = validation_.count(), .shuffle = false, .remainder = kolo::Remainder::uneven});
  const std::vector<std::int64_t> windows = sampler.indices();
  kolo::MetricAverage loss({"loss"});
  const auto size = static_cast<std::size_t>(options_.batch_size);
  std::size_t end = windows.size();
  if (model_) kolo::allreduce(end, {.op = kolo::ReduceOp::max});
  for (std::size_t i = 0; i < end; i += size) {
    if (i >= windows.size()) {  // KOLO: the others gather layers
      model_->begin_evaluation().end();
      continue;
    }
    const Batch batch =
        validation_.batch(std::span(windows).subspan(i, std::min(size, windows.size() - i)));
    loss.add("loss", evaluate(batch), static_cast<double>(batch.targets.size()));
  }
  const double mean = loss.over_all_ranks().at("loss");
  if (kolo::rank() == 0) fmt::print("step {}: validation loss {:.4f}\n", step_, mean);
  return mean;
}

double Trainer::evaluate(const Batch& batch) {
  if (!model_) return network_.forward(adamw_.parameter_memory().data(), batch);
  auto forward = model_->begin_evaluation();
  const double loss = network_.forward(ShardedMemory(forward), batch);
  forward.end();
  return loss;
}

void Trainer::report() {
  const double loss = metrics_.over_all_ranks().at("loss");
  metrics_.reset();
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - reported_).count();
  const auto tokens = static_cast<double>((step_ - reported_step_) * tokens_per_step());
  if (kolo::rank() == 0) {
    fmt::print("step {}: loss {:.6f}, learning rate {:.3g}, {:.0f} tokens/s\n", step_, loss,
               learning_rate_(step_ - 1), tokens / seconds);
    std::fflush(stdout);
  }
  reported_ = now;
  reported_step_ = step_;
}

std::int64_t Trainer::tokens_per_step() const {
  return options_.batch_size * options_.accumulate * kolo::size() *
         static_cast<std::int64_t>(options_.network.context);
}

std::string Trainer::write(int bytes) {
  std::string text = "\n";
  if (model_) {
    const kolo::ShardedModel::Whole whole = model_->gather();  // KOLO: on all ranks
    if (kolo::rank() == 0) write(GatheredMemory{whole}, bytes, text);
  } else if (kolo::rank() == 0) {
    write(WholeMemory<float>{layout_, adamw_.parameter_memory().data()}, bytes, text);
  }
  return text.substr(1);
}

void Trainer::write(const auto& memory, int bytes, std::string& text) {
  Random random(options_.seed);
  for (int i = 0; i < bytes; ++i) {
    const std::size_t seen = std::min(text.size(), options_.network.context);
    const std::vector<std::uint8_t> tokens(text.end() - static_cast<std::ptrdiff_t>(seen),
                                           text.end());
    text += draw_byte(network_.scores_after(memory, tokens), random);
  }
}

}  // namespace gpt
