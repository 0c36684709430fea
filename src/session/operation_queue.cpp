#include "session/operation_queue.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::session {

using negotiation::Key;

namespace {

constexpr std::size_t most_kept = 16384;  // names that are not pending

}  // namespace

OperationPtr OperationQueue::push(std::shared_ptr<Engine> engine, Submission submission) {
  std::unique_lock lock(mutex_);
  Key key = make_key(submission, lock);
  joined_ = submission.descriptor.type == OperationType::join;
  submitted_.push_back(std::make_shared<detail::Operation>(std::move(engine), std::move(key),
                                                           std::move(submission)));
  any_submitted_.store(true, std::memory_order_release);
  return submitted_.back();
}

Key OperationQueue::make_key(const Submission& submission, Lock& lock) {
  if (joined_)
    refuse<InvalidArgument>(
        lock, submission,
        fmt::format("{} \"{}\": rank {} has joined, and may submit nothing until all ranks have",
                    kolo::to_string(submission.descriptor.type), submission.name, rank_));
  Key key{.name = submission.name, .set = submission.set};
  switch (submission.descriptor.type) {
    case OperationType::join: key.number = negotiation::join_number; break;
    case OperationType::add_process_set:
    case OperationType::remove_process_set: key.number = negotiation::set_change_number; break;
    default:
      if (!key.named()) return number(submission, lock);
  }
  if (std::exchange(pending_[key], true))
    refuse<DuplicateName>(
        lock, submission,
        fmt::format("{} {}: an operation of this name is still pending on rank {}",
                    kolo::to_string(submission.descriptor.type), negotiation::to_string(key),
                    rank_));
  return key;
}

Key OperationQueue::number(const Submission& submission, Lock& lock) {
  Unnamed& unnamed = unnamed_[submission.set];
  if (unnamed.pending > 0 && unnamed.thread != std::this_thread::get_id())
    refuse<InvalidArgument>(
        lock, submission,
        fmt::format("{} without a name: another thread of rank {} has one pending, and nothing "
                    "tells them apart on other ranks; give them names",
                    kolo::to_string(submission.descriptor.type), rank_));
  unnamed.thread = std::this_thread::get_id();
  ++unnamed.pending;
  return {.number = unnamed.next++, .set = submission.set};
}

template <typename E>
void OperationQueue::refuse(Lock& lock, const Submission& submission,
                            const std::string& message) const {
  lock.unlock();
  throw E(message, submission.name, {rank_});
}

std::vector<OperationPtr> OperationQueue::take() {
  if (!any_submitted_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  any_submitted_.store(false, std::memory_order_relaxed);
  std::vector<OperationPtr> taken = std::exchange(submitted_, {});
  submitted_.reserve(taken.size());
  return taken;
}

void OperationQueue::release(std::span<const OperationPtr> operations) {
  const std::lock_guard lock(mutex_);
  for (const OperationPtr& operation : operations) release(*operation);
}

void OperationQueue::release(const detail::Operation& operation) {
  const Key& key = operation.key();
  if (!key.named() && !key.reserved()) {
    --unnamed_[key.set].pending;
    return;
  }
  const auto known = pending_.find(key);
  known->second = false;
  if (pending_.size() > most_kept || key.reserved()) pending_.erase(known);
  if (operation.descriptor().type != OperationType::join) return;
  // All ranks have joined: whoever had missed operations without a name counts like the others.
  joined_ = false;
  for (auto& [set, unnamed] : unnamed_) unnamed.next = 0;
}

}  // namespace kolo::session
