// SPDX-License-Identifier: Apache-2.0
// PassReducer: the counts, and the end of operations and of a pass.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kolo/error.hpp"
#include "training/optimizer/pass_reducer.hpp"

namespace kolo::internal {

// In their order: usually, they land in it.
void PassReducer::note_completed() {
  for (; completed_ < pending_.size(); ++completed_) {
    const PendingReduction& pending = pending_[completed_];
    if (pending.own || pending.chain || !pending.future.ready()) return;
    for (const std::size_t slot : pending.slots) storage_.completed(slot, pending.round);
  }
}

// The first number is 0, or tells the lowest rank of the set whose backward has thrown.
void PassReducer::fill_counts() {
  storage_.prepare_end();
  const std::size_t refused = 1 + buckets_.size() + bucket_of_.size();
  counts_.assign(refused + (has_hook() ? buckets_.size() : 0), 0);
  if (failed_) {
    counts_[0] = options_.process_set.size() - options_.process_set.rank();
    for (const PendingReduction& pending : pending_)
      if (pending.chain && pending.round == 0)
        counts_[refused + pending.bucket] = pending.chain->operations();
  }
  for (std::size_t u = 0; u < buckets_.size(); ++u) {
    const Bucket& bucket = buckets_[u];
    const bool has_more =
        std::any_of(bucket.slots.begin(), bucket.slots.end(), [&](std::size_t slot) {
          const bool is_left = bucket.rounds == 0 && storage_.is_waiting(slot);
          return storage_.takes_part(slot) && (fresh_[slot] || is_left);
        });
    counts_[1 + u] = bucket.rounds + (has_more ? 1 : 0);
  }
  for (std::size_t slot = 0; slot < bucket_of_.size(); ++slot)
    if (storage_.takes_part(slot)) counts_[1 + buckets_.size() + slot] = storage_.content(slot);
}

void PassReducer::call_counts() {
  const TensorView view(counts_);
  const GroupedAllreduceOptions max{.name = fmt::format("{}(backward)", number_),
                                    .op = ReduceOp::max,
                                    .process_set = options_.process_set};
  counts_future_ =
      detail::call_async(detail::GroupedAllreduceCall{{&view, 1}, max, step_.of_operation()});
}

bool PassReducer::counts_arrive_within(std::chrono::duration<double> timeout) noexcept {
  if (!counts_submitted_ || counts_agreed_) return true;
  try {
    return counts_future_.wait_for(timeout);
  } catch (...) {
    return true;  // whoever takes them gets the error
  }
}

void PassReducer::take_counts() {
  try {
    counts_future_.get();
  } catch (const Mismatch&) {
    if (!storage_.ends_steps_together()) throw;
    if (!error_) error_ = std::current_exception();
    fill_counts();
    call_counts();
    counts_future_.get();
  }
  read_counts();
}

// Other ranks reduce a bucket of which this rank reduces nothing. They get zeros, as they wait.
void PassReducer::refuse_frozen(Bucket& bucket) {
  if (std::any_of(bucket.slots.begin(), bucket.slots.end(),
                  [&](std::size_t slot) { return storage_.takes_part(slot); }))
    return;
  attempt([&] { submit_group(bucket, bucket.slots); });
  ++bucket.rounds;
  attempt([&] {
    throw InvalidArgument(
        fmt::format("'{}' requires no gradient on this rank, but does on others: freeze and "
                    "unfreeze parameters on all ranks alike",
                    bucket.name),
        bucket.name);
  });
}

void PassReducer::wait_for(PendingReduction& pending) {
  if (pending.own) {
    pending.own->wait();
  } else if (pending.chain) {
    if (pending.chain->error()) std::rethrow_exception(pending.chain->error());
  } else {
    pending.future.get();
  }
}

// Waits for all operations even after one has failed, because they still write to the gradients.
// After a failure the pass is over on all ranks, so that they stay in step.
void PassReducer::finish_pending() noexcept {
  take_hook_status();
  for (PendingReduction& pending : pending_) attempt([&] { wait_for(pending); });
  const std::size_t first = 1 + buckets_.size();
  for (std::size_t slot = 0; slot < bucket_of_.size(); ++slot)
    attempt([&] {
      const bool exists = !counts_agreed_ || !is_member_ || counts_[first + slot] > 0;
      storage_.close(slot, exists && !failed_);
    });
  leave_pass();
}

void PassReducer::proceed(int part) noexcept {
  if (reach_hooks(part)) return;
  if (hook_status_due_) return submit_hook_status();
  finish_pending();
}

void PassReducer::finish() noexcept {
  for (int operations = 2; reach_hooks(operations); ++operations) {
  }
  submit_hook_status();
  finish_pending();
}

void PassReducer::leave_pass() {
  // Nothing was submitted if the session refused it: then the other ranks do not count the pass.
  if (counts_submitted_ || !pending_.empty()) step_.advance();
  pending_.clear();
  completed_ = 0;
  counts_future_ = {};
  counts_submitted_ = false;
  hook_status_due_ = true;
  for (Bucket& bucket : buckets_) bucket.rounds = 0;
  std::fill(fresh_.begin(), fresh_.end(), false);
  active_ = false;
  if (failed_ || error_) return;
  ++passes_;
  local_passes_ = 0;
  reduced_ = true;
  ++reductions_;
}

void PassReducer::rethrow() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace kolo::internal
