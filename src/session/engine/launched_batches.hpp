// SPDX-License-Identifier: Apache-2.0
// Batches whose operations are done although the GPU still works: the GPU does them in the order of
// its streams.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/runtime/completion.hpp"
#include "base/descriptor.hpp"

namespace kolo::internal::session {

struct LaunchedBatch {
  std::unique_ptr<backend::Execution> execution;
  std::shared_ptr<backend::gpu::Completion> completion;
  std::string what;    // the batch in words, since its operations may be used again
  std::string tensor;  // the name of its first tensor
  std::uint64_t sequence;
  std::int64_t bytes;
  std::chrono::steady_clock::time_point since;  // when the GPU could begin, by SessionClock
};

/// The driver adds and settles the batches, in the order in which the GPU executes them. The
/// `const` functions are thread-safe.
class LaunchedBatches {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // For the driver only:
  [[nodiscard]] std::deque<LaunchedBatch>& batches() { return batches_; }
  void add(LaunchedBatch batch) {
    bytes_ += batch.bytes;
    const std::lock_guard lock(mutex_);
    batches_.push_back(std::move(batch));
  }
  /// Removes the oldest batch, which has ended; with an error if the session has failed.
  void settle_oldest(const std::exception_ptr& error, TimePoint now) {
    // Destroyed without the lock, which `oldest` and `newest` need.
    LaunchedBatch ended = take_oldest();
    ended.execution.reset();
    bytes_ -= ended.bytes;
    if (error) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = error;
    }
    ended.completion->settle(error);
    if (!batches_.empty()) batches_.front().since = now;
  }

  /// Notes an operation with a name that went the way of captured ones. A step has far fewer than
  /// this object keeps.
  void note_prepared_for_graphs(SetId set, const std::string& name,
                                const std::vector<TensorSpec>& tensors) {
    const std::lock_guard lock(mutex_);
    const bool is_known = prepared_.contains({set, name});
    if (!is_known) names_prepared_.emplace_back(set, name);
    prepared_[{set, name}] = tensors;
    if (names_prepared_.size() <= max_prepared) return;
    prepared_.erase(names_prepared_.front());
    names_prepared_.pop_front();
  }
  /// True if an operation with the same tensors went that way.
  [[nodiscard]] bool is_prepared_for_graphs(SetId set, const std::string& name,
                                            const std::vector<TensorSpec>& tensors) const {
    const std::lock_guard lock(mutex_);
    const auto found = prepared_.find({set, name});
    return found != prepared_.end() && found->second == tensors;
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// Null if there is no batch.
  [[nodiscard]] std::shared_ptr<backend::gpu::Completion> oldest() const {
    const std::lock_guard lock(mutex_);
    return batches_.empty() ? nullptr : batches_.front().completion;
  }
  [[nodiscard]] std::shared_ptr<backend::gpu::Completion> newest() const {
    const std::lock_guard lock(mutex_);
    return batches_.empty() ? nullptr : batches_.back().completion;
  }
  /// The error of the first batch that failed; null if none has.
  [[nodiscard]] std::exception_ptr error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  LaunchedBatch take_oldest() {
    const std::lock_guard lock(mutex_);
    LaunchedBatch oldest = std::move(batches_.front());
    batches_.pop_front();
    return oldest;
  }

  std::atomic<std::int64_t> bytes_{0};
  mutable std::mutex mutex_{};
  std::exception_ptr error_{};
  std::deque<LaunchedBatch> batches_{};  // written by the driver under the lock
  static constexpr std::size_t max_prepared = 10'000;
  std::map<std::pair<SetId, std::string>, std::vector<TensorSpec>> prepared_{};
  std::deque<std::pair<SetId, std::string>> names_prepared_{};  // the oldest first
};

}  // namespace kolo::internal::session
