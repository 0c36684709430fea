// SPDX-License-Identifier: Apache-2.0
// The numbers on which the ranks agree at the end of a backward pass.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/process_set.hpp"
#include "training/optimizer/gradient_buckets.hpp"

namespace kolo::internal {

/// The mark of this rank in a maximum over the set's ranks. It is above 0, and larger for a lower
/// rank, so that the maximum is the mark of the lowest marked rank. 0 marks no rank.
[[nodiscard]] inline std::int32_t mark_of_this_rank(const ProcessSet& set) {
  return set.size() - set.rank();
}
/// The rank, in the world, that a mark above 0 identifies.
[[nodiscard]] inline int marked_rank(const ProcessSet& set, std::int32_t mark) {
  const std::vector<int> members = set.ranks();
  return members[members.size() - static_cast<std::size_t>(mark)];
}

/// Every rank fills in its numbers, and one allreduce replaces each by its maximum over the ranks.
/// The allreduce carries all fields in the order in which they are declared here.
class PassSummary {
 public:
  /// Resizes the fields, and fills all but `hashes` and the fingerprint with 0. `refused` is empty
  /// unless a hook is in use.
  void reset(const GradientBuckets& buckets, bool has_hook, std::span<const std::int32_t> hashes) {
    buckets_ = buckets.all().size();
    slots_ = buckets.slots();
    refused_ = has_hook ? buckets_ : 0;
    numbers_.assign(head + buckets_ + slots_ + refused_, 0);
    numbers_[1] = buckets.fingerprint();
    numbers_[2] = sum_of_complements - buckets.fingerprint();
    numbers_.insert(numbers_.end(), hashes.begin(), hashes.end());
  }

  /// The mark of this rank if its backward has thrown.
  [[nodiscard]] std::int32_t& failure() { return numbers_[0]; }
  /// True if the ranks agree, and their buckets have different names. The further fields then mean
  /// nothing.
  [[nodiscard]] bool tells_different_buckets() const {
    return is_agreed() && numbers_[1] != sum_of_complements - numbers_[2];
  }
  /// For each bucket, the number of rounds that this rank has submitted or will submit: 0, 1 or 2.
  [[nodiscard]] std::span<std::int32_t> rounds() { return field(head, buckets_); }
  /// For each slot, `GradientStorage::content`.
  [[nodiscard]] std::span<std::int32_t> contents() { return field(head + buckets_, slots_); }
  /// For each bucket, the number of operations that the hook has submitted for the first round, if
  /// backward has thrown on this rank. The last of these is a refusal, which ends the hooks of the
  /// other ranks.
  [[nodiscard]] std::span<std::int32_t> refused() {
    return field(head + buckets_ + slots_, refused_);
  }
  /// In a pass that compares parameters, their hashes (`encode`) on ranks with a backward pass, and
  /// then as many on ranks without. A rank leaves the other half 0.
  [[nodiscard]] std::span<std::int32_t> hashes() {
    const std::size_t begin = head + buckets_ + slots_ + refused_;
    return field(begin, numbers_.size() - begin);
  }

  void submit(const std::string& name, const ProcessSet& set, std::int64_t step) {
    const TensorView view(numbers_);
    const GroupedAllreduceOptions max{.name = name, .op = ReduceOp::max, .process_set = set};
    future_ = detail::call_async(detail::GroupedAllreduceCall{{&view, 1}, max, step});
    state_ = State::submitted;
  }
  /// The future of the submitted numbers, until `wait`; null before `submit`.
  [[nodiscard]] const detail::FutureBase* future() const {
    return state_ == State::submitted ? &future_ : nullptr;
  }
  /// Waits for the maxima. Throws the errors of the allreduce, after which the ranks do not agree.
  void wait() {
    state_ = State::failed;
    future_.get();
    state_ = State::agreed;
  }
  /// Ends the pass.
  void close() {
    future_ = {};
    state_ = State::open;
  }

  /// True from `submit` to `close`.
  [[nodiscard]] bool is_submitted() const { return state_ != State::open; }
  /// True from `wait` to `close`: the numbers are the maxima.
  [[nodiscard]] bool is_agreed() const { return state_ == State::agreed; }
  /// True if the ranks agree that a backward has thrown.
  [[nodiscard]] bool tells_failure() const { return is_agreed() && numbers_[0] > 0; }

 private:
  enum class State : std::uint8_t { open, submitted, failed, agreed };
  static constexpr std::size_t head = 3;  // the failure, the fingerprint and its complement

  [[nodiscard]] std::span<std::int32_t> field(std::size_t begin, std::size_t size) {
    return std::span(numbers_).subspan(begin, size);
  }

  std::size_t buckets_ = 0;
  std::size_t slots_ = 0;
  std::size_t refused_ = 0;
  std::vector<std::int32_t> numbers_{};
  State state_ = State::open;
  Future<void> future_{};  // last, so destroyed first: the allreduce writes to the numbers
};

}  // namespace kolo::internal
