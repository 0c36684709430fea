// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/pass_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

constexpr auto no_bucket = static_cast<std::size_t>(-1);

}  // namespace

void require_disjoint(const char* subject, std::size_t uses,
                      const std::function<MemoryUse(std::size_t)>& use_of,
                      const std::function<std::string(std::size_t)>& name_of_slot) {
  const Overlap both = find_overlap_of_written(uses, use_of);
  if (!both) return;
  const std::string second = name_of_slot(both->second);
  throw InvalidArgument(
      fmt::format("{}: the gradients '{}' and '{}' share memory. Give each its own, or list a "
                  "gradient once if several parameters share it",
                  subject, name_of_slot(both->first), second),
      second);
}

PassReducer::PassReducer(GradientStorage& storage, const DistributedOptimizerOptions& options,
                         bool counted)
    : storage_(storage),
      options_(options),
      claim_(options.hook),
      counted_(counted),
      is_member_(options.process_set.rank() >= 0),
      prescale_(prescale(options)) {}

PassReducer::~PassReducer() = default;

void PassReducer::add(const std::string& name, std::optional<std::size_t> group) {
  const std::size_t slot = bucket_of_.size();
  std::size_t bucket = buckets_.size();
  if (group) {
    if (bucket_of_group_.size() <= *group) bucket_of_group_.resize(*group + 1, no_bucket);
    if (bucket_of_group_[*group] == no_bucket) bucket_of_group_[*group] = bucket;
    bucket = bucket_of_group_[*group];
  }
  // A group's operation is named after its number: it must not depend on which gradients the group
  // has, because names identify operations across ranks.
  if (bucket == buckets_.size())
    buckets_.push_back({.name = group ? fmt::format("(group {})", *group) : name,
                        .is_group = group.has_value(),
                        .slots = {}});
  buckets_[bucket].slots.push_back(slot);
  bucket_of_.push_back(bucket);
  fresh_.push_back(false);
}

void PassReducer::replace(std::size_t slot, const std::string& retired) {
  Bucket& bucket = buckets_[bucket_of_[slot]];
  *std::find(bucket.slots.begin(), bucket.slots.end(), slot) = bucket_of_.size();
  bucket.first_place += bucket.slots.size();
  bucket_of_.push_back(std::exchange(bucket_of_[slot], buckets_.size()));
  fresh_.push_back(false);
  buckets_.push_back({.name = retired, .is_group = false, .slots = {slot}});
}

std::string PassReducer::operation_of(std::size_t slot) const {
  return operation_name(buckets_[bucket_of_[slot]], 0);
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
    // The program may have filled the memory of the gradients anew.
    for (const PendingReduction& pending : pending_)
      if (pending.chain) pending.chain->drop();
    finish();
    error_ = nullptr;
    forget_passes();
    return Cut::operations;
  }
  if (!step_.is_behind_join()) return Cut::nothing;
  const bool any =
      local_passes_ > 0 || std::find(fresh_.begin(), fresh_.end(), true) != fresh_.end();
  forget_passes();
  step_.catch_up();
  return any ? Cut::passes : Cut::nothing;
}

void PassReducer::rejoin() noexcept {
  for (const PendingReduction& pending : pending_)
    if (pending.chain) pending.chain->drop();
  if (active_ || !pending_.empty()) finish();
  failed_ = active_ = false;
  error_ = nullptr;
  forget_passes();
  step_ = StepNumber();
}

void PassReducer::begin(bool reducing) {
  settle();
  error_ = nullptr;
  active_ = true;
  reducing_ = reducing;
}

bool PassReducer::is_complete(const Bucket& bucket) const {
  return std::all_of(bucket.slots.begin(), bucket.slots.end(),
                     [&](std::size_t slot) { return fresh_[slot] || !storage_.takes_part(slot); });
}

void PassReducer::ready(std::size_t slot) {
  fresh_[slot] = true;
  Bucket& bucket = buckets_[bucket_of_[slot]];
  // The ranks agree on the order of operations by name, so buckets may become ready in any order.
  if (is_complete(bucket)) submit(bucket);
  note_completed();
  if (options_.hook)
    for (const PendingReduction& pending : pending_)
      if (pending.chain) pending.chain->poll();
}

bool PassReducer::is_submitted(std::size_t slot) const {
  return buckets_[bucket_of_[slot]].rounds > 0;
}

// Only the operation of a gradient has a dot after the optimizer's number or the round, so that no
// gradient's name makes it another operation.
std::string PassReducer::name_in_pass(const Bucket& bucket, int round) {
  const std::string first = round == 0 ? "" : fmt::format("(round {})", round + 1);
  return first + (bucket.is_group ? "" : ".") + bucket.name;
}

std::string PassReducer::operation_name(const Bucket& bucket, int round) const {
  return std::to_string(number_) + name_in_pass(bucket, round);
}

void PassReducer::submit(Bucket& bucket) {
  std::vector<std::size_t> slots;
  for (const std::size_t slot : bucket.slots)
    if (storage_.takes_part(slot)) slots.push_back(slot);
  if (!is_member_) {
    apply_factor(bucket);
  } else if (slots.empty()) {
    return;  // no round, or other ranks would count one
  } else {
    submit_group(bucket, slots);
  }
  ++bucket.rounds;
  for (const std::size_t slot : bucket.slots) fresh_[slot] = false;
}

void PassReducer::submit_group(Bucket& bucket, const std::vector<std::size_t>& slots) {
  // The number of the step is part of the operation, so a rank in another pass gets Mismatch
  // instead of a sum of gradients of different passes.
  const std::int64_t number = step_.of_operation();
  const std::string name = operation_name(bucket, bucket.rounds);
  std::vector<TensorView> views;
  PendingReduction pending{
      .slots = slots, .bucket = bucket_of_[slots.front()], .round = bucket.rounds};
  try {
    if (slots.size() == 1) pending.own = storage_.open_own(slots.front(), factor_, name, number);
    if (!pending.own) {
      for (const std::size_t slot : slots) views.push_back(storage_.open(slot, factor_));
      if (is_for_hook(views)) {
        pending.chain = begin_chain(bucket, slots, views);
      } else {
        pending.future = allreduce(slots.front(), name, views);
      }
    }
  } catch (...) {
    for (std::size_t i = 0; i < views.size(); ++i) storage_.cancel(slots[i]);
    throw;
  }
  step_.begin();
  pending_.push_back(std::move(pending));
}

Future<void> PassReducer::allreduce(std::size_t slot, const std::string& name,
                                    const std::vector<TensorView>& views) {
  const GroupedAllreduceOptions allreduce{.name = name,
                                          .op = options_.op,
                                          .prescale = prescale_,
                                          .postscale = postscale(options_),
                                          .compression = options_.compression,
                                          .process_set = options_.process_set};
  return storage_.submit(slot, {views, allreduce, step_.of_operation()});
}

// Outside the process set, nothing is reduced.
void PassReducer::apply_factor(Bucket& bucket) {
  for (const std::size_t slot : bucket.slots)
    if (storage_.takes_part(slot)) storage_.scale(slot, factor_);
}

void PassReducer::submit_rest() {
  for (Bucket& bucket : buckets_)
    if (bucket.rounds == 0) submit(bucket);
}

void PassReducer::attempt(const std::function<void()>& action) noexcept {
  try {
    action();
  } catch (...) {
    if (!error_) error_ = std::current_exception();
  }
}

void PassReducer::submit_counts() noexcept {
  if (counts_submitted_) return;  // the pass failed since: the operation uses them, or has agreed
  attempt([&] {
    counts_agreed_ = false;
    fill_counts();
    if (!counted_ || !is_member_) return;
    call_counts();
    step_.begin();
    counts_submitted_ = true;
  });
}

// The maximum over the ranks is in place now.
void PassReducer::read_counts() {
  counts_agreed_ = true;
  const int failure = counts_[0];
  if (failure > 0 && !failed_) {
    const std::vector<int> members = options_.process_set.ranks();
    const int rank = members[members.size() - static_cast<std::size_t>(failure)];
    throw BackwardFailed(
        fmt::format("backward() has thrown on rank {}, so the gradients of this pass are not "
                    "reduced. See the error of that rank. Call zero_grad() before the next pass",
                    rank),
        {}, {rank});
  }
}

void PassReducer::submit_missing() noexcept {
  if (counts_submitted_ && !counts_agreed_) {
    attempt([&] { take_counts(); });
  }
  const bool unknown = counted_ && is_member_ && !counts_agreed_;
  for (std::size_t slot = 0; slot < bucket_of_.size() && !unknown; ++slot)
    storage_.expect(slot, counts_[1 + buckets_.size() + slot]);
  for (std::size_t u = 0; u < buckets_.size(); ++u) {
    // If the ranks could not agree, each submits everything once, so that all get an answer.
    const int wanted = unknown || !counted_ ? 1 : counts_[1 + u];
    while (buckets_[u].rounds < wanted) {
      const int before = buckets_[u].rounds;
      if (!unknown && is_member_) refuse_frozen(buckets_[u]);
      if (buckets_[u].rounds == before) attempt([&] { submit(buckets_[u]); });
      if (buckets_[u].rounds == before) break;
    }
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
  submit_counts();
  submit_missing();
  finish();
  rethrow();
}

void PassReducer::fail_pass() noexcept {
  if (!active()) return;
  if (!reducing_) {
    active_ = false;
    ++local_passes_;  // what it has accumulated is not reduced
    return;
  }
  failed_ = true;
  // If another rank's backward has thrown, its hooks have refused, and these go on until then.
  for (const PendingReduction& pending : pending_)
    if (pending.chain && !(counts_submitted_ && knows_failure())) pending.chain->abort();
  // One round of everything, before the counts, which tell the others of it. What else they have
  // submitted is not known before the counts are. If the others have these, they wait for no more.
  for (Bucket& bucket : buckets_)
    if (bucket.rounds == 0 && !counts_submitted_) attempt([&] { submit(bucket); });
  const bool are_counted = counts_submitted_ && counts_agreed_;
  submit_counts();
  if (are_counted) submit_hook_status();  // for no count tells the others
  for (std::size_t slot = 0; slot < bucket_of_.size(); ++slot)
    attempt([&] { storage_.detach(slot); });
}

void PassReducer::settle() noexcept {
  if (!failed_) return;
  // If the session has refused everything, the other ranks know nothing of this pass.
  if (counts_submitted_ || !pending_.empty()) submit_missing();
  finish();
  failed_ = false;
  error_ = nullptr;  // of a pass whose error the program has already
}

void PassReducer::end_step() {
  forget_passes();
  step_.advance();
}

}  // namespace kolo::internal
