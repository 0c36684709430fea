// SPDX-License-Identifier: Apache-2.0
#include "session/engine/operation_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "session/engine/engine.hpp"

namespace kolo::internal::session {

using detail::Operation;

namespace {

constexpr std::size_t max_kept = 8192;          // names, above which idle ones are forgotten
constexpr std::size_t max_new_kept = 512;       // operations of names that were submitted once
constexpr std::size_t max_unnamed_kept = 1024;  // done operations without a name, in each set

/// True if the operation is done and only the queue holds it. The answer stays true while the
/// caller holds the queue's lock, because a new reference is made only under the lock.
bool can_begin_again(const OperationPtr& operation) {
  if (operation.use_count() != 1 || !operation->done()) return false;
  // `use_count` is a relaxed load. A thread that drops its reference decrements the count with
  // release order; the acquire fence pairs with that, so that reuse begins after the thread's last
  // reads.
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

/// The key of an operation that has a name or a reserved number.
Key key_of(const Submission& submission) {
  const OperationType type = submission.descriptor.type;
  if (!traits_of(type).is_reserved) return {.name = submission.name, .set = submission.set};
  const bool join = type == OperationType::join;
  return {.number = join ? join_number : set_change_number, .set = submission.set};
}

}  // namespace

OperationQueue::OperationQueue(int rank)
    : rank_(rank), max_known_(max_kept), max_new_(max_new_kept) {}

OperationPtr OperationQueue::push(Engine& engine, Submission& submission, Notice notice) {
  std::unique_lock lock(mutex_);
  const OperationType type = submission.descriptor.type;
  if (closed_) refuse<ShutDown>(lock, submission, "this rank has left the session");
  // Other ranks count a joined rank as present in every operation, so they would take its
  // submission for one of a later operation of the same name.
  if (joined_)
    refuse<InvalidArgument>(
        lock, submission,
        fmt::format("{} \"{}\": rank {} has joined, and may submit nothing until all ranks have",
                    internal::to_string(type), submission.name, rank_));
  const bool unnamed = submission.name.empty() && !traits_of(type).is_reserved;
  OperationPtr operation =
      unnamed ? next_unnamed(engine, submission, lock) : next_known(engine, submission, lock);
  operation->begin(submission, ++versions_);
  joined_ = type == OperationType::join;
  append(*operation, notice);
  return operation;
}

OperationPtr OperationQueue::push_again(const Repetition& repetition, Notice notice) {
  const std::lock_guard lock(mutex_);
  Known* const expected = find_repeated(repetition);
  if (expected == nullptr) return nullptr;
  last_ = expected;
  expected->is_new = false;
  expected->operation->begin_again(repetition);
  append(*expected->operation, notice);
  return expected->operation;
}

bool OperationQueue::expects(const Repetition& repetition) {
  const std::lock_guard lock(mutex_);
  return find_repeated(repetition) != nullptr;
}

/// The entry of the operation that `repetition` repeats, if it is the one that followed the last
/// submission; else null.
OperationQueue::Known* OperationQueue::find_repeated(const Repetition& repetition) {
  Known* const expected = last_ != nullptr ? last_->follower : nullptr;
  if (expected == nullptr || expected->operation == nullptr || closed_ || joined_) return nullptr;
  if (!can_begin_again(expected->operation) || !expected->operation->is(repetition)) return nullptr;
  return expected;
}

void OperationQueue::append(Operation& operation, Notice notice) {
  submitted_.push_back(&operation);
  // A load and a store instead of an atomic increment: all writers hold the lock. Relaxed: readers
  // need only an approximate number.
  if (notice == Notice::rung)
    unattended_.store(unattended_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (notice != Notice::gathered) any_submitted_.store(true, std::memory_order_release);
}

bool OperationQueue::show_gathered() {
  const std::lock_guard lock(mutex_);
  if (submitted_.empty()) return false;
  any_submitted_.store(true, std::memory_order_release);
  return true;
}

OperationPtr OperationQueue::next_known(Engine& engine, const Submission& submission, Lock& lock) {
  Known& entry = known(submission);
  OperationPtr& operation = entry.operation;
  if (operation != nullptr) {
    if (can_begin_again(operation)) {
      entry.is_new = false;
      return operation;
    }
    if (!operation->done())
      refuse<DuplicateName>(
          lock, submission,
          fmt::format("{} {}: an operation of this name is still pending on rank {}",
                      internal::to_string(submission.descriptor.type),
                      internal::to_string(operation->key()), rank_));
  }
  operation = std::make_shared<Operation>(engine.weak_from_this());
  operation->set_key(key_of(submission));
  return operation;
}

void OperationQueue::drop_new() {
  std::erase_if(new_, [](Known* known) {
    if (!known->is_new || known->operation == nullptr) return true;
    if (!can_begin_again(known->operation)) return false;
    known->is_new = false;  // the next operation of this name is kept
    known->operation.reset();
    return true;
  });
  max_new_ = std::max(max_new_kept, 2 * new_.size());  // as in `forget_if_many`
}

/// The entry of the submission's name. Tries the name that followed the last one before a lookup.
OperationQueue::Known& OperationQueue::known(const Submission& submission) {
  Known* const expected = last_ != nullptr ? last_->follower : nullptr;
  if (expected != nullptr && expected->operation != nullptr && !submission.name.empty()) {
    const Key& key = expected->operation->key();
    if (key.set == submission.set && key.name == submission.name) return *(last_ = expected);
  }
  forget_if_many();
  if (new_.size() >= max_new_) drop_new();
  const auto [place, is_added] = known_.try_emplace(key_of(submission));
  Known& found = place->second;
  if (is_added) new_.push_back(&found);
  if (last_ != nullptr) last_->follower = &found;
  return *(last_ = &found);
}

void OperationQueue::forget_if_many() {
  if (known_.size() < max_known_) return;
  forget_done();
  // If most operations are still pending, the limit doubles, so that the cost of a scan stays
  // constant for each submission.
  max_known_ = std::max(max_kept, 2 * known_.size());
}

void OperationQueue::forget_done() {
  std::erase_if(known_, [](const auto& known) {
    return known.second.operation == nullptr || known.second.operation->done();
  });
  for (auto& [key, known] : known_) known.follower = nullptr;
  last_ = nullptr;
  new_.clear();
  max_new_ = max_new_kept;
}

OperationPtr OperationQueue::next_unnamed(Engine& engine, const Submission& submission,
                                          Lock& lock) {
  Unnamed& unnamed = unnamed_[submission.set];
  if (unnamed.pending > 0 && unnamed.thread != std::this_thread::get_id())
    refuse<InvalidArgument>(
        lock, submission,
        fmt::format("{} without a name: another thread of rank {} has one pending, and nothing "
                    "distinguishes them on other ranks; give them names",
                    internal::to_string(submission.descriptor.type), rank_));
  unnamed.thread = std::this_thread::get_id();
  ++unnamed.pending;
  OperationPtr operation;
  auto& all = unnamed.operations;
  while (all.size() > max_unnamed_kept && all.front()->done()) all.pop_front();
  if (!all.empty() && all.front()->done()) {
    if (can_begin_again(all.front())) operation = std::move(all.front());
    all.pop_front();
  }
  // The oldest operation cannot be reused if it is pending or its future still holds it.
  if (operation == nullptr) operation = std::make_shared<Operation>(engine.weak_from_this());
  operation->set_key({.number = unnamed.next++, .set = submission.set});
  all.push_back(operation);
  return operation;
}

template <typename E>
void OperationQueue::refuse(Lock& lock, const Submission& submission,
                            const std::string& message) const {
  lock.unlock();
  throw E(message, submission.name, {rank_});
}

std::uint64_t OperationQueue::settled_unattended() {
  const std::lock_guard lock(mutex_);
  return unattended_.load(std::memory_order_relaxed);
}

void OperationQueue::take(std::vector<Operation*>& taken) {
  taken.clear();
  if (!any()) return;
  const std::lock_guard lock(mutex_);
  any_submitted_.store(false, std::memory_order_relaxed);  // ordered by the lock
  taken.swap(submitted_);
}

void OperationQueue::release(std::span<Operation* const> operations, bool failed) {
  // Named operations need no release. Most batches hold nothing else, so they skip the lock.
  const auto is_named = [](const Operation* operation) { return operation->key().named(); };
  if (std::ranges::all_of(operations, is_named)) return;
  const std::lock_guard lock(mutex_);
  for (const Operation* operation : operations) release(*operation, failed);
}

void OperationQueue::release(const Operation& operation, bool failed) {
  const Key& key = operation.key();
  if (!key.named() && !key.reserved()) --unnamed_[key.set].pending;
  if (operation.descriptor().type == OperationType::remove_process_set && !failed)
    forget_removed(operation.descriptor().removed);
  if (operation.descriptor().type != OperationType::join) return;
  joined_ = false;
  // All ranks have joined. Ranks that joined early have missed operations without a name, so all
  // ranks restart the numbers of such operations. After a failed join the numbers continue, because
  // a join may fail on one rank alone.
  if (failed) return;
  for (auto& [set, unnamed] : unnamed_) unnamed.next = 0;
}

/// Forgets the removed sets that have no pending operation. A set with pending operations stays
/// until a later removal, because the queue owns the operations that the driver still holds.
void OperationQueue::forget_removed(SetId set) {
  if (const auto found = unnamed_.find(set); found != unnamed_.end()) found->second.removed = true;
  std::erase_if(unnamed_, [](const auto& numbered) {
    const Unnamed& unnamed = numbered.second;
    return unnamed.removed && unnamed.pending == 0 &&
           std::ranges::all_of(unnamed.operations, [](const auto& one) { return one->done(); });
  });
}

std::vector<Operation*> OperationQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  any_submitted_.store(false, std::memory_order_relaxed);  // ordered by the lock
  return std::exchange(submitted_, {});
}

}  // namespace kolo::internal::session
