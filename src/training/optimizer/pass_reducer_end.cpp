// SPDX-License-Identifier: Apache-2.0
// The end of a PassReducer's pass: the phases from the summary to the results.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/rank_set.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "training/hooks/hook_chain.hpp"
#include "training/optimizer/pass_reducer.hpp"

namespace kolo::internal {

void PassReducer::rethrow() {
  const std::exception_ptr comparison = comparison_.take_error();
  const std::exception_ptr first = error_ ? error_.take() : comparison;
  if (!first) return;
  try {
    std::rethrow_exception(first);
  } catch (const PeerLeft& error) {
    // A rank that has left too early tells how many passes its optimizers have made.
    throw PeerLeft(fmt::format("{}. This rank has made {} such passes", error.what(),
                               detail::note_passes(step_.passes())),
                   error.tensor(), error.ranks());
  }
}

void PassReducer::end_pass() {
  if (!reducing_) {
    ++passes_;
    ++local_passes_;
    active_ = false;
    std::fill(fresh_.begin(), fresh_.end(), false);
    return;
  }
  end_together({this});
  rethrow();
}

void PassReducer::end_together(const std::vector<PassReducer*>& passes) noexcept {
  for (PassReducer* const pass : passes) pass->submit_summary();
  std::vector<Ending> open;
  for (PassReducer* const pass : passes) open.push_back({pass});
  while (!open.empty()) {
    const bool all = !wait_for_any(open);
    std::erase_if(open, [&](Ending& ending) {
      const detail::FutureBase* const future = ending.awaited();
      return (all || future == nullptr || future->ready()) && ending.submit_next();
    });
  }
  // Nothing is left to be submitted, so no pass waits for another one of this rank.
  for (PassReducer* const pass : passes)
    if (pass->active()) pass->finish_pending();
}

// A rank that steps without backward ends the passes of its optimizers one after the other, in the
// program's order, so any future may be the first to be ready. Returns false if this thread cannot
// wait; `submit_next` then gets the reason.
bool PassReducer::wait_for_any(const std::vector<Ending>& open) noexcept {
  try {
    std::vector<const detail::FutureBase*> futures;
    for (const Ending& ending : open) {
      futures.push_back(ending.awaited());  // called once: the answer may come at any time
      if (futures.back() == nullptr) return true;
    }
    detail::FutureBase::wait_for_any(futures);
    return true;
  } catch (...) {
    return false;
  }
}

const detail::FutureBase* PassReducer::Ending::awaited() const {
  return operations == 0 ? pass->awaited() : pass->hooks_.awaited(operations);
}

bool PassReducer::Ending::submit_next() noexcept {
  if (operations == 0) {
    // The first operation of each hook was submitted together with its bucket.
    if (pass->learn()) operations = 2;
    return false;
  }
  if (!pass->active()) return true;
  if (pass->reach_hooks(operations)) {
    ++operations;
    return false;
  }
  pass->submit_hook_status();
  return true;
}

void PassReducer::fill_summary() {
  storage_.prepare_end();
  const std::vector<Bucket>& buckets = buckets_.all();
  std::vector<std::int32_t> hashes = comparison_.begin(step_.passes());
  // Ranks with a backward pass are not compared with ranks without: there, another optimizer may
  // have stepped since.
  const std::vector<std::int32_t> absent(hashes.size(), 0);
  hashes.insert(counts_ ? hashes.end() : hashes.begin(), absent.begin(), absent.end());
  summary_.reset(buckets_, hooks_.are_used(), hashes);
  if (failed_) {
    summary_.failure() = mark_of_this_rank(options_.process_set);
    hooks_.count_refused(summary_.refused());
  }
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = buckets[i];
    const bool has_more =
        std::any_of(bucket.slots.begin(), bucket.slots.end(), [&](std::size_t slot) {
          const bool is_left = bucket.rounds == 0 && storage_.is_waiting(slot);
          return storage_.takes_part(slot) && (fresh_[slot] || is_left);
        });
    summary_.rounds()[i] = bucket.rounds + (has_more ? 1 : 0);
  }
  for (std::size_t slot = 0; slot < slots(); ++slot)
    if (storage_.takes_part(slot)) summary_.contents()[slot] = storage_.content(slot);
}

void PassReducer::call_summary() {
  summary_.submit(fmt::format("{}(backward)", number_), options_.process_set, step_.of_operation());
}

void PassReducer::submit_summary() noexcept {
  if (summary_.is_submitted()) return;
  error_.attempt([&] { submit_held(); });
  error_.attempt([&] {
    fill_summary();
    if (!agrees_ || !is_member_) return;
    call_summary();
    step_.begin();
  });
}

void PassReducer::take_summary() {
  try {
    summary_.wait();
  } catch (const Mismatch&) {
    differs_ = !storage_.ends_steps_together() || met_step_end_;
    if (differs_) throw;
    // The summary has met the end of another rank's step, or the gradients differ. In the first
    // case that rank waits for this one in its next pass, so the summary is submitted again, once,
    // and the error kept.
    met_step_end_ = true;
    error_.note(std::current_exception());
    fill_summary();
    call_summary();
    return;
  }
  differs_ = summary_.tells_different_buckets();
  if (failed_ || differs_) return;
  if (!summary_.tells_failure()) return comparison_.require_equal(summary_.hashes());
  const int rank = marked_rank(options_.process_set, summary_.failure());
  throw BackwardFailed(
      fmt::format("backward() has thrown on rank {}, so the gradients of this pass are not "
                  "reduced. See the error of that rank. Call zero_grad() before the next pass",
                  rank),
      {}, {rank});
}

// Other ranks reduce a bucket in which this rank has only frozen parameters. They wait for this
// rank, so it submits zeros.
void PassReducer::refuse_frozen(Bucket& bucket) {
  if (std::any_of(bucket.slots.begin(), bucket.slots.end(),
                  [&](std::size_t slot) { return storage_.takes_part(slot); }))
    return;
  error_.attempt([&] { submit_slots(bucket, bucket.slots); });
  ++bucket.rounds;
  error_.attempt([&] {
    throw InvalidArgument(
        fmt::format("'{}' requires no gradient on this rank, but does on others: freeze and "
                    "unfreeze parameters on all ranks alike",
                    bucket.name),
        bucket.name);
  });
}

const detail::FutureBase* PassReducer::awaited() const {
  return submitted_.future() != nullptr ? submitted_.future() : summary_.future();
}

bool PassReducer::learn() noexcept {
  if (submitted_.future() != nullptr) {
    error_.attempt([&] { refuse_partial(); });
    return true;
  }
  if (summary_.future() != nullptr) error_.attempt([&] { take_summary(); });
  if (summary_.future() != nullptr) return false;
  submit_missing();
  return submitted_.future() == nullptr;
}

void PassReducer::submit_missing() noexcept {
  const bool unknown = agrees_ && is_member_ && !knows_rounds();
  for (std::size_t slot = 0; slot < slots() && !unknown; ++slot)
    storage_.expect(slot, summary_.contents()[slot]);
  for (std::size_t i = 0; i < buckets_.all().size(); ++i) {
    Bucket& bucket = buckets_.all()[i];
    // If the ranks could not agree, each submits everything once, so that all get an answer. After
    // a failure, no rank submits a second round.
    int wanted = unknown || !agrees_ ? 1 : summary_.rounds()[i];
    if (summary_.tells_failure()) wanted = std::min(wanted, 1);
    while (bucket.rounds < wanted) {
      const int before = bucket.rounds;
      if (!unknown && is_member_) refuse_frozen(bucket);
      if (bucket.rounds == before) error_.attempt([&] { submit(bucket); });
      if (bucket.rounds <= before) break;
    }
  }
  error_.attempt([&] { submit_held(); });
  if (differs_) error_.attempt([&] { gather_submitted(); });
}

// A bucket in which nothing takes part has no operation, but belongs to what differs.
void PassReducer::gather_submitted() {
  std::vector<std::string> names;
  for (const Bucket& bucket : buckets_.all())
    if (bucket.rounds == 0) submit_refusal(operation_name(bucket, 0));
  for (const PendingReduction& pending : pending_) names.push_back(pending.name);
  // The name is that of the summary: a rank in another pass, which is at its summary, gets Mismatch
  // instead of an answer that never comes.
  submitted_.gather(fmt::format("{}(backward)", number_), names, options_.process_set);
}

// A module has changed on some ranks only, or the ranks are in different passes. Operations that
// only some ranks have would wait for the others for ever. So the ranks tell each other what they
// have submitted, and each submits an operation that matches no other in the place of what it does
// not have. All get Mismatch for it. A rank whose backward has thrown does so once it settles, and
// the others wait for it.
void PassReducer::refuse_partial() {
  const auto partial = submitted_.take_partial(options_.process_set);
  if (partial.empty()) return;
  const auto& [operation, ranks] = *partial.begin();
  std::string bucket = operation.substr(std::to_string(number_).size());
  for (const std::string_view start : {"(hook 1)", "."})
    if (bucket.starts_with(start)) bucket.erase(0, start.size());
  error_.replace(std::make_exception_ptr(Mismatch(
      fmt::format("{}: the gradients differ between the ranks: '{}' is on {} only. Add, replace "
                  "and remove layers on all ranks alike, before the same pass",
                  subject_, bucket, ranks_in_words(RankSet::of(ranks))),
      bucket, ranks)));
  for (const auto& [name, holders] : partial)
    if (std::ranges::find(holders, rank()) == holders.end()) submit_refusal(name);
}

void PassReducer::submit_refusal(const std::string& name) {
  const TensorView view(refusal_);
  const GroupedAllreduceOptions options{
      .name = name, .op = ReduceOp::sum, .process_set = options_.process_set};
  pending_.push_back({.name = name,
                      .future = detail::call_async(
                          detail::GroupedAllreduceCall{{&view, 1}, options, HookChain::no_step})});
}

bool PassReducer::reach_hooks(int operations) noexcept {
  return hooks_.reach(operations, knows_rounds() ? summary_.refused() : std::span<std::int32_t>());
}

void PassReducer::finish() noexcept {
  for (int operations = 2; reach_hooks(operations); ++operations) {
  }
  submit_hook_status();
  finish_pending();
}

void PassReducer::submit_hook_status() noexcept {
  if (!hooks_.begin_status()) return;
  // If the session refused every submission, the other ranks do not count this pass. After a
  // summary that tells of a failure, all ranks fail anyway, and the failed rank does not wait.
  if (!hooks_.are_used() || summary_.tells_failure() || !was_submitted()) return;
  error_.attempt([&] {
    hooks_.submit_status(fmt::format("{}(hooks)", number_), step_.of_operation(), failed_);
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
  // The status is taken first, because its error tells more: the operations of a hook that has
  // thrown end in Mismatch on all ranks.
  error_.attempt([&] { hooks_.take_status(); });
  for (PendingReduction& pending : pending_) error_.attempt([&] { wait_for(pending); });
  // A custom optimizer has no summary of the pass. Its ranks compare here, where either all ranks
  // have reduced all gradients or none has.
  if (!agrees_ && !error_ && !failed_ && !step_.is_before_join())
    comparison_.compare(number_, step_);
  for (std::size_t slot = 0; slot < slots(); ++slot)
    error_.attempt([&] {
      const bool exists = !knows_rounds() || summary_.contents()[slot] > 0;
      storage_.close(slot, exists && !failed_);
    });
  leave_pass();
}

void PassReducer::leave_pass() {
  // If the session refused every submission, the other ranks do not count this pass.
  if (was_submitted()) step_.advance_pass();
  pending_.clear();
  completed_ = 0;
  hooks_.close();
  summary_.close();
  differs_ = met_step_end_ = false;
  for (Bucket& bucket : buckets_.all()) bucket.rounds = 0;
  std::fill(fresh_.begin(), fresh_.end(), false);
  active_ = false;
  if (failed_ || error_) return;
  detail::note_failed_pass(false);
  if (counts_) ++passes_;
  local_passes_ = 0;
  reduced_ = true;
  ++reductions_;
}

}  // namespace kolo::internal
