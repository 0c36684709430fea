#include "session/operation_queue.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::session {

using negotiation::Key;

OperationPtr OperationQueue::push(std::shared_ptr<Engine> engine, Submission submission) {
  std::unique_lock lock(mutex_);
  Key key = make_key(submission, lock);
  joined_ = submission.descriptor.type == OperationType::join;
  submitted_.push_back(std::make_shared<detail::Operation>(std::move(engine), std::move(key),
                                                           std::move(submission)));
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
  if (!pending_.insert(key).second)
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
  const std::lock_guard lock(mutex_);
  return std::exchange(submitted_, {});
}

void OperationQueue::release(const detail::Operation& operation) {
  const std::lock_guard lock(mutex_);
  const Key& key = operation.key();
  if (!key.named() && !key.reserved()) {
    --unnamed_[key.set].pending;
    return;
  }
  pending_.erase(key);
  if (operation.descriptor().type != OperationType::join) return;
  // All ranks have joined: whoever had missed operations without a name counts like the others.
  joined_ = false;
  for (auto& [set, unnamed] : unnamed_) unnamed.next = 0;
}

}  // namespace kolo::session
