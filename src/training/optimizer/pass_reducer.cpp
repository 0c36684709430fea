// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/pass_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/dtype.hpp"
#include "kolo/detail/submission_burst.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "training/optimizer/optimizer_setup.hpp"

namespace kolo::internal {
namespace {

/// Gradients on the GPU are submitted once they have so many bytes: a submission of its own for
/// each costs the host more than the GPU gains by an earlier start. Small enough that a usual model
/// has several batches, so that the GPU reduces while backward computes.
constexpr std::int64_t held_bytes = std::int64_t{16} << 20;

}  // namespace

PassReducer::PassReducer(GradientStorage& storage, const DistributedOptimizerOptions& options,
                         bool agrees)
    : storage_(storage),
      options_(options),
      agrees_(agrees),
      is_member_(options.process_set.rank() >= 0),
      prescale_(prescale(options)),
      comparison_(options),
      hooks_(options.hook, options.process_set) {}

// After a failed pass, other ranks wait for what `settle` submits, unless the pass belongs to an
// earlier session. An exception may have kept them from coming to the end of the pass.
PassReducer::~PassReducer() {
  if (std::uncaught_exceptions() == 0 && initialized() && !step_.is_before_join()) settle();
}

void PassReducer::add(const std::string& name, std::optional<std::size_t> group) {
  buckets_.add(name, group);
  fresh_.push_back(false);
}

void PassReducer::replace(std::size_t slot, const std::string& retired) {
  buckets_.replace(slot, retired);
  fresh_.push_back(false);
}

void PassReducer::agree(const char* subject, const std::string& sharding,
                        std::vector<Item> gradients) {
  subject_ = subject;
  comparison_.start(subject);
  number_ = agree_on_optimizer_number(options_.process_set);
  if (detail::agreements_are_deferred()) return;
  for (std::size_t slot = 0; slot < slots(); ++slot)
    if (const auto group = buckets_.of(slot).group)
      gradients[slot].description += fmt::format(", in group {}", *group);
  Item options = describe(options_);
  options.description += sharding;
  gradients.insert(gradients.begin(), std::move(options));
  require_agreement(fmt::format("kolo.optimizer.{}", number_),
                    fmt::format("The options or gradients of the {}", subject), gradients,
                    options_.process_set);
}

void PassReducer::set_scales(double factor, double prescale) {
  factor_ = factor;
  prescale_ = prescale;
}

void PassReducer::forget_passes() {
  passes_ = 0;
  local_passes_ = 0;
  reduced_ = false;
  std::fill(fresh_.begin(), fresh_.end(), false);
}

PassReducer::Cut PassReducer::drop_before_join() noexcept {
  if (step_.is_cut_by_join()) {
    hooks_.drop();  // no further stages: the program may have filled the gradients anew
    drop_held();
    finish();
    error_.clear();
    forget_passes();
    return Cut::operations;
  }
  if (!step_.is_behind_join()) return Cut::nothing;
  drop_held();
  const bool any =
      local_passes_ > 0 || std::find(fresh_.begin(), fresh_.end(), true) != fresh_.end();
  forget_passes();
  step_.catch_up();
  return any ? Cut::passes : Cut::nothing;
}

void PassReducer::rejoin() noexcept {
  hooks_.drop();
  drop_held();
  if (active_ || !pending_.empty()) finish();
  failed_ = active_ = false;
  error_.clear();
  forget_passes();
  step_ = StepNumber();
}

void PassReducer::begin(bool reducing, bool counts) {
  settle();
  hooks_.settle();
  error_.clear();
  comparison_.clear_error();
  active_ = true;
  reducing_ = reducing;
  counts_ = counts;
}

bool PassReducer::is_complete(const Bucket& bucket) const {
  return std::all_of(bucket.slots.begin(), bucket.slots.end(),
                     [&](std::size_t slot) { return fresh_[slot] || !storage_.takes_part(slot); });
}

void PassReducer::ready(std::size_t slot) {
  fresh_[slot] = true;
  Bucket& bucket = buckets_.of(slot);
  // The ranks agree on the order of operations by name, so buckets may become ready in any order.
  if (bucket.rounds == 0 && is_complete(bucket)) submit(bucket);
  note_completed();
  hooks_.poll();
}

bool PassReducer::is_submitted(std::size_t slot) const { return buckets_.of(slot).rounds > 0; }

std::string PassReducer::operation_name(const Bucket& bucket, int round) const {
  return std::to_string(number_) + bucket.name_in_round(round);
}

std::string PassReducer::hook_operation(const std::string& bucket, int operation) const {
  return fmt::format("{}(hook {}){}", number_, operation, bucket);
}

void PassReducer::submit(Bucket& bucket) {
  std::vector<std::size_t> slots;
  for (const std::size_t slot : bucket.slots)
    if (storage_.takes_part(slot)) slots.push_back(slot);
  if (!is_member_) {
    for (const std::size_t slot : slots) storage_.scale(slot, factor_);
  } else if (slots.empty()) {
    return;  // no round, or other ranks would count one
  } else {
    submit_slots(bucket, slots);
  }
  ++bucket.rounds;
  for (const std::size_t slot : bucket.slots) fresh_[slot] = false;
  if (held_.bytes >= held_bytes) submit_held();
}

void PassReducer::submit_slots(const Bucket& bucket, const std::vector<std::size_t>& slots) {
  // The number of the step is part of the operation, so a rank in another pass gets Mismatch
  // instead of a sum of gradients of different passes.
  const std::int64_t number = step_.of_operation();
  const std::string name = operation_name(bucket, bucket.rounds);
  std::vector<TensorView> views;
  PendingReduction pending{.slots = slots, .round = bucket.rounds, .name = name};
  // `GradientStorage::submit` takes the last round.
  if (bucket.rounds > 0 && holds(bucket)) submit_held();
  try {
    if (slots.size() == 1) pending.own = storage_.open_own(slots.front(), factor_, name, number);
    if (!pending.own) {
      for (const std::size_t slot : slots) views.push_back(storage_.open(slot, factor_));
      if (hooks_.handle(views)) {
        pending.chain = &begin_chain(bucket, slots, views);
        pending.name = hook_operation(bucket.name_in_round(bucket.rounds), 1);
      } else if (agrees_ && views.front().device().type == DeviceType::cuda) {
        hold({.slots = slots, .round = bucket.rounds, .name = name, .held = views});
        return;
      } else {
        pending.future = allreduce(slots, name, views);
      }
    }
  } catch (...) {
    for (std::size_t i = 0; i < views.size(); ++i) storage_.cancel(slots[i]);
    throw;
  }
  step_.begin();
  pending_.push_back(std::move(pending));
}

// Keeps the gradient, which is opened, until enough are held. They share a mark, so all of them are
// computed on one stream. Without an agreement at the end of passes, as for custom optimizers, the
// program decides what happens between `ready` and the end, and may wait for other ranks there, so
// nothing is held.
void PassReducer::hold(PendingReduction&& pending) {
  const detail::StreamInUse stream = detail::stream_in_use(pending.held.front().device().index);
  if (held_.operations > 0 && held_.stream.handle != stream.handle) submit_held();
  for (const TensorView& view : pending.held)
    held_.bytes += view.elements() * signed_size_of(view.dtype());
  held_.stream = stream;
  ++held_.operations;
  pending_.push_back(std::move(pending));
}

bool PassReducer::holds(const Bucket& bucket) const {
  return held_.operations > 0 &&
         std::ranges::any_of(pending_, [&](const PendingReduction& pending) {
           return !pending.held.empty() && &buckets_.of(pending.slots.front()) == &bucket;
         });
}

void PassReducer::submit_held() {
  if (held_.operations == 0) return;
  try {
    const detail::SubmissionBurst burst(held_.stream);
    for (PendingReduction& pending : pending_) {
      if (pending.held.empty()) continue;
      pending.future = allreduce(pending.slots, pending.name, pending.held);
      pending.held.clear();
      step_.begin();
    }
    held_ = {};
  } catch (...) {
    drop_held();
    throw;
  }
}

// Takes back what is held, as if it had not become ready.
void PassReducer::drop_held() noexcept {
  held_ = {};
  std::erase_if(pending_, [this](const PendingReduction& pending) {
    if (pending.held.empty()) return false;
    for (const std::size_t slot : pending.slots) {
      storage_.cancel(slot);
      fresh_[slot] = true;
    }
    --buckets_.of(pending.slots.front()).rounds;
    return true;
  });
}

Future<void> PassReducer::allreduce(std::span<const std::size_t> slots, const std::string& name,
                                    const std::vector<TensorView>& views) {
  const GroupedAllreduceOptions allreduce{.name = name,
                                          .op = options_.op,
                                          .prescale = prescale_,
                                          .postscale = postscale(options_),
                                          .compression = options_.compression,
                                          .process_set = options_.process_set};
  return storage_.submit(slots, {views, allreduce, step_.of_operation()});
}

const HookChain& PassReducer::begin_chain(const Bucket& bucket,
                                          const std::vector<std::size_t>& slots,
                                          const std::vector<TensorView>& views) {
  const std::string name = bucket.name_in_round(bucket.rounds);
  const double members = options_.op == ReduceOp::average ? options_.process_set.size() : 1.0;
  return hooks_.begin(
      buckets_.index_of(slots.front()), bucket.rounds,
      {.bucket = bucket.name,
       .rank = rank(),
       .process_set = options_.process_set,
       .name_of = [this, name](int operation) { return hook_operation(name, operation); },
       .check = [this] { static_cast<void>(step_.of_operation()); },
       .allreduce = [this, slots,
                     views](const std::string& of) { return allreduce(slots, of, views); }},
      {.name = name,
       .tensors = views,
       .prescale = prescale_,
       .postscale = postscale(options_) / members,
       .process_set = options_.process_set,
       .places = bucket.places_of(slots)},
      /*refuses=*/failed_);
}

void PassReducer::submit_rest() {
  for (Bucket& bucket : buckets_.all())
    if (bucket.rounds == 0) submit(bucket);
  submit_held();
}

// Tells the storage which operations are done. Stops at the first that is not, because operations
// usually complete in the order of submission.
void PassReducer::note_completed() {
  for (; completed_ < pending_.size(); ++completed_) {
    const PendingReduction& pending = pending_[completed_];
    if (pending.own || pending.chain || !pending.held.empty() || !pending.future.finished()) return;
    for (const std::size_t slot : pending.slots) storage_.completed(slot, pending.round);
  }
}

void PassReducer::fail_pass() noexcept {
  if (!active()) return;
  if (!reducing_) {
    active_ = false;
    ++local_passes_;  // the pass has accumulated gradients that are not reduced
    return;
  }
  failed_ = true;
  detail::note_failed_pass(true);
  hooks_.abort();
  // The other ranks may have submitted the first round of any bucket. They submit no second one,
  // because the summary tells them of the failure.
  for (Bucket& bucket : buckets_.all())
    if (bucket.rounds == 0) error_.attempt([&] { submit(bucket); });
  submit_summary();
  for (std::size_t slot = 0; slot < slots(); ++slot) error_.attempt([&] { storage_.detach(slot); });
}

void PassReducer::settle() noexcept {
  if (!failed_) return;
  // If the session refused every submission, the other ranks know nothing of this pass.
  if (was_submitted())
    while (!learn()) {
    }
  finish();
  failed_ = false;
  error_.clear();  // the program has the error of this pass already
}

void PassReducer::end_step() {
  forget_passes();
  step_.advance();
}

}  // namespace kolo::internal
