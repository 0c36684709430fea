// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/hook_chain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/failure.hpp"
#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "training/agreement.hpp"

namespace kolo::detail {

HookClaim::HookClaim(std::shared_ptr<CommunicationHook> hook) : hook_(std::move(hook)) {
  if (!hook_) return;
  if (hook_->taken_.exchange(true))
    throw InvalidArgument(
        fmt::format("another optimizer uses this communication hook ({}). It keeps state under the "
                    "names of gradients: give each optimizer its own",
                    hook_->description()));
}

HookClaim::~HookClaim() {
  if (hook_) hook_->taken_ = false;
}

}  // namespace kolo::detail

namespace kolo::internal {
namespace {

// True if the error means that ranks have joined. It then lists the joined ranks, never this one.
// Any other Mismatch lists the ranks that submitted, and this rank is one of them.
bool is_absence(const Mismatch& error, int self) {
  const auto& ranks = error.ranks();
  return !ranks.empty() && std::find(ranks.begin(), ranks.end(), self) == ranks.end();
}

}  // namespace

void HookChain::start(CommunicationHook& hook, GradientBucket bucket) {
  pending_.reserve(1);  // a push_back that throws would lose the Future of a submitted operation
  try {
    stages_ = std::move(hook.reduce(std::move(bucket)).list());
    if (!submits_more()) throw InvalidArgument("it has no stage that submits an operation");
  } catch (...) {
    fail();
    submit_refusal(pending_);
    return;
  }
  run_stages();
  // Nothing was submitted, not even a refusal: the session takes no operations.
  if (operations_ == 0 && error_) std::rethrow_exception(error_);
}

bool HookChain::submits_more() const noexcept {
  return std::any_of(stages_.begin() + static_cast<std::ptrdiff_t>(next_), stages_.end(),
                     [](const HookStages::Stage& stage) { return stage.submits; });
}

void HookChain::run_stages() noexcept {
  while (pending_.empty() && next_ < stages_.size()) {
    const bool others_submit = submits_more();
    try {
      const HookStages::Stage& stage = stages_[next_];
      if (!stage.submits) {
        static_cast<void>(stage.run({}));
      } else {
        calls_.check();
        auto future = stage.run(calls_.name_of(operations_ + 1));
        if (!future->valid()) throw InvalidArgument("a stage has returned an invalid Future");
        pending_.push_back(std::move(future));
        ++operations_;
      }
      ++next_;
    } catch (const NeedsAllreduce&) {
      turn_to_allreduce();
    } catch (...) {
      fail();
      try {
        if (others_submit) submit_refusal(pending_);
      } catch (...) {
        thrown_.clear();  // the session takes no operations: that is no failure of the hook
        error_ = std::current_exception();
      }
    }
  }
}

// Takes the message of the exception that is being handled, so it must be called in a catch block.
void HookChain::fail() noexcept {
  thrown_ = message_of_current_exception();
  drop();
}

void HookChain::submit_refusal(std::vector<std::shared_ptr<detail::FutureBase>>& to) {
  calls_.check();
  to.reserve(to.size() + 1);
  refused_ = true;
  auto element = std::make_unique<float>(0.0F);
  const TensorView view(*element);
  const AllreduceOptions options{.name = calls_.name_of(operations_ + 1),
                                 .op = ReduceOp::sum,
                                 .process_set = calls_.process_set};
  to.push_back(std::make_shared<Future<float>>(
      detail::call_async(detail::AllreduceCall{view, view, options, no_step}, std::move(element))));
  ++operations_;
}

void HookChain::take_answers() noexcept {
  bool is_absent = false;
  for (const auto& future : pending_) {
    try {
      future->wait();
    } catch (const Mismatch& error) {
      is_absent = !refused_ && is_absence(error, calls_.rank);
      if (!is_absent) error_ = std::current_exception();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  pending_.clear();
  if (error_) drop();
  if (is_absent) turn_to_allreduce();
}

// Overwrites the last stage with the allreduce, because adding a further stage could fail for lack
// of memory. No operation is pending, so nothing uses the memory of the overwritten stage.
void HookChain::turn_to_allreduce() noexcept {
  next_ = stages_.size() - 1;
  stages_[next_] = {true, [this](const std::string& name) {
                      return std::make_shared<Future<void>>(calls_.allreduce(name));
                    }};
}

void HookChain::poll() noexcept {
  const auto is_answered = [](const auto& future) { return future->ready(); };
  while (!pending_.empty() && std::all_of(pending_.begin(), pending_.end(), is_answered)) {
    take_answers();
    run_stages();
  }
}

void HookChain::reach(int operations) noexcept {
  while (!ended() && operations_ < operations) {
    take_answers();
    run_stages();
  }
}

const detail::FutureBase* HookChain::awaited(int operations) const noexcept {
  if (operations_ >= operations) return nullptr;
  for (const auto& future : pending_)
    if (!future->ready()) return future.get();
  return nullptr;
}

void HookChain::close(int operation) noexcept {
  if (!ended() || operations_ >= operation) return;
  try {
    submit_refusal(unanswered_);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void HookChain::abort() noexcept {
  const bool others_submit = submits_more();
  drop();
  try {
    if (others_submit) submit_refusal(unanswered_);
  } catch (...) {
    error_ = std::current_exception();
  }
}

std::vector<std::shared_ptr<detail::FutureBase>> HookChain::take_unanswered() noexcept {
  std::erase_if(unanswered_, [](const auto& future) { return future->ready(); });
  return std::exchange(unanswered_, {});
}

}  // namespace kolo::internal
