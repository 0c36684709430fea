// SPDX-License-Identifier: Apache-2.0
// PassReducer: communication hooks.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "training/optimizer/pass_reducer.hpp"

namespace kolo::internal {
namespace {

// Of some slots among all; both are in the same order.
std::vector<std::size_t> places_of(const std::vector<std::size_t>& some,
                                   const std::vector<std::size_t>& all, std::size_t first) {
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < all.size() && places.size() < some.size(); ++place)
    if (all[place] == some[places.size()]) places.push_back(first + place);
  return places;
}

}  // namespace

// With one rank there is nothing to send, and so nothing to lose.
bool PassReducer::has_hook() const {
  return options_.hook && is_member_ && options_.process_set.size() > 1;
}

bool PassReducer::is_for_hook(const std::vector<TensorView>& views) const {
  return has_hook() && options_.hook->handles(views) &&
         std::all_of(views.begin(), views.end(),
                     [](const TensorView& view) { return view.device().type == DeviceType::cpu; });
}

std::unique_ptr<HookChain> PassReducer::begin_chain(const Bucket& bucket,
                                                    const std::vector<std::size_t>& slots,
                                                    const std::vector<TensorView>& views) {
  const std::string name = name_in_pass(bucket, bucket.rounds);
  const double members = options_.op == ReduceOp::average ? options_.process_set.size() : 1.0;
  auto chain = std::make_unique<HookChain>(HookChain::Calls{
      .bucket = bucket.name,
      .rank = rank(),
      .process_set = options_.process_set,
      .name_of =
          [name, number = number_](int operation) {
            return fmt::format("{}(hook {}){}", number, operation, name);
          },
      .check = [this] { static_cast<void>(step_.of_operation()); },
      .allreduce = [this, slot = slots.front(),
                    views](const std::string& of) { return allreduce(slot, of, views); }});
  if (failed_) {
    chain->refuse();
  } else {
    chain->start(*options_.hook, {.name = name,
                                  .tensors = views,
                                  .prescale = prescale_,
                                  .postscale = postscale(options_) / members,
                                  .process_set = options_.process_set,
                                  .places = places_of(slots, bucket.slots, bucket.first_place)});
  }
  return chain;
}

int PassReducer::refused(const PendingReduction& pending) const {
  if (!counts_submitted_ || !counts_agreed_ || pending.round > 0) return 0;
  return counts_[1 + buckets_.size() + bucket_of_.size() + pending.bucket];
}

// Returns whether any bucket takes that many operations. All ranks find the same.
bool PassReducer::reach_hooks(int operations) noexcept {
  bool any = false;
  for (const PendingReduction& pending : pending_) {
    if (!pending.chain) continue;
    pending.chain->reach(operations);
    pending.chain->close(refused(pending));
    any = any || pending.chain->operations() >= operations;
  }
  return any;
}

void PassReducer::submit_hook_status() noexcept {
  if (!std::exchange(hook_status_due_, false)) return;
  // Nothing was submitted if the session refused it: then the other ranks do not count the pass.
  // And if a backward has thrown, all ranks know, but that rank does not wait for its pass's end.
  const bool known_failure = knows_failure();
  attempt([&] {
    if (!has_hook() || known_failure || (!counts_submitted_ && pending_.empty())) return;
    const bool threw =
        failed_ ||
        std::any_of(pending_.begin(), pending_.end(), [](const PendingReduction& pending) {
          return pending.chain && !pending.chain->thrown().empty();
        });
    const ProcessSet& set = options_.process_set;
    hook_status_ = threw ? set.size() - set.rank() : 0;
    const TensorView view(hook_status_);
    const GroupedAllreduceOptions max{
        .name = fmt::format("{}(hooks)", number_), .op = ReduceOp::max, .process_set = set};
    hook_status_future_ =
        detail::call_async(detail::GroupedAllreduceCall{{&view, 1}, max, step_.of_operation()});
  });
}

// Before the errors of operations: those of a hook that has thrown are Mismatch on all ranks.
void PassReducer::take_hook_status() noexcept {
  if (!hook_status_future_.valid()) return;
  attempt([&] { std::exchange(hook_status_future_, {}).get(); });
  for (const PendingReduction& pending : pending_)
    attempt([&] {
      if (!pending.chain || pending.chain->thrown().empty()) return;
      throw HookFailed(fmt::format("the communication hook ({}) has thrown for '{}': {}. Call "
                                   "zero_grad() before the next pass",
                                   options_.hook->description(), pending.chain->bucket(),
                                   pending.chain->thrown()),
                       pending.chain->bucket(), {rank()});
    });
  attempt([&] {
    if (hook_status_ == 0) return;
    const std::vector<int> members = options_.process_set.ranks();
    const int thrower = members[members.size() - static_cast<std::size_t>(hook_status_)];
    throw HookFailed(
        fmt::format("the communication hook ({}) has thrown on rank {}, so the gradients of this "
                    "pass are not reduced. See the error of that rank. Call zero_grad() before the "
                    "next pass",
                    options_.hook->description(), thrower),
        {}, {thrower});
  });
}

}  // namespace kolo::internal
