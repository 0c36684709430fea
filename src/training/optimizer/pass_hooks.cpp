// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/pass_hooks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "training/optimizer/pass_summary.hpp"

namespace kolo::internal {

PassHooks::PassHooks(std::shared_ptr<CommunicationHook> hook, ProcessSet set)
    : hook_(std::move(hook)), claim_(hook_), set_(std::move(set)), is_member_(set_.rank() >= 0) {}

bool PassHooks::are_used() const { return hook_ && is_member_ && initialized() && set_.size() > 1; }

bool PassHooks::handle(const std::vector<TensorView>& views) const {
  return are_used() && hook_->handles(views) &&
         std::all_of(views.begin(), views.end(),
                     [](const TensorView& view) { return view.device().type == DeviceType::cpu; });
}

const HookChain& PassHooks::begin(std::size_t bucket, int round, HookChain::Calls calls,
                                  GradientBucket tensors, bool refuses) {
  auto chain = std::make_unique<HookChain>(std::move(calls));
  if (refuses) {
    chain->refuse();
  } else {
    chain->start(*hook_, std::move(tensors));
  }
  return *chains_.emplace_back(Entry{bucket, round, std::move(chain)}).chain;
}

void PassHooks::poll() noexcept {
  for (const Entry& entry : chains_) entry.chain->poll();
}

void PassHooks::abort() noexcept {
  for (const Entry& entry : chains_) entry.chain->abort();
}

void PassHooks::drop() noexcept {
  for (const Entry& entry : chains_) entry.chain->drop();
}

void PassHooks::count_refused(std::span<std::int32_t> refused) const {
  for (const Entry& entry : chains_)
    if (entry.round == 0) refused[entry.bucket] = entry.chain->operations();
}

const detail::FutureBase* PassHooks::awaited(int operations) const {
  for (const Entry& entry : chains_)
    if (const detail::FutureBase* const future = entry.chain->awaited(operations)) return future;
  return nullptr;
}

bool PassHooks::reach(int operations, std::span<const std::int32_t> refused) noexcept {
  bool any = false;
  for (const Entry& entry : chains_) {
    entry.chain->reach(operations);
    entry.chain->close(entry.round == 0 && !refused.empty() ? refused[entry.bucket] : 0);
    any = any || entry.chain->operations() >= operations;
  }
  return any;
}

const HookChain* PassHooks::first_thrown() const {
  for (const Entry& entry : chains_)
    if (!entry.chain->thrown().empty()) return entry.chain.get();
  return nullptr;
}

bool PassHooks::begin_status() { return !std::exchange(has_begun_status_, true); }

void PassHooks::submit_status(const std::string& name, std::int64_t step, bool failed) {
  status_ = failed || first_thrown() != nullptr ? mark_of_this_rank(set_) : 0;
  const TensorView view(status_);
  const GroupedAllreduceOptions max{.name = name, .op = ReduceOp::max, .process_set = set_};
  status_future_ = detail::call_async(detail::GroupedAllreduceCall{{&view, 1}, max, step});
}

void PassHooks::take_status() {
  if (!status_future_.valid()) return;
  std::exchange(status_future_, {}).get();
  if (const HookChain* const chain = first_thrown())
    throw HookFailed(fmt::format("the communication hook ({}) has thrown for '{}': {}. Call "
                                 "zero_grad() before the next pass",
                                 hook_->description(), chain->bucket(), chain->thrown()),
                     chain->bucket(), {rank()});
  if (status_ == 0) return;
  const int thrower = marked_rank(set_, status_);
  throw HookFailed(
      fmt::format("the communication hook ({}) has thrown on rank {}, so the gradients of this "
                  "pass are not reduced. See the error of that rank. Call zero_grad() before the "
                  "next pass",
                  hook_->description(), thrower),
      {}, {thrower});
}

void PassHooks::settle() noexcept {
  for (const auto& future : unanswered_) {
    try {
      future->wait();
    } catch (...) {  // usually Mismatch, as it was meant to be
    }
  }
  unanswered_.clear();
}

void PassHooks::close() {
  for (const Entry& entry : chains_)
    std::ranges::move(entry.chain->take_unanswered(), std::back_inserter(unanswered_));
  chains_.clear();
  has_begun_status_ = false;
}

}  // namespace kolo::internal
