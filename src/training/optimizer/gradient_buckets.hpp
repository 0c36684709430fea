// SPDX-License-Identifier: Apache-2.0
// The gradients of an optimizer, divided into buckets.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace kolo::internal {

/// The gradients that one operation reduces: a group of slots, or a slot that is in no group.
struct Bucket {
  std::string name;
  std::optional<std::size_t> group{};
  std::vector<std::size_t> slots{};
  std::size_t first_place = 0;  // place of the first slot, for hooks; grows at each replacement
  int rounds = 0;               // submitted by this rank in the current pass

  /// The part of the operation's name after the optimizer's number.
  [[nodiscard]] std::string name_in_round(int round) const;
  /// The places of some of the bucket's slots (`GradientBucket::places`). `some` is in the order of
  /// the bucket.
  [[nodiscard]] std::vector<std::size_t> places_of(const std::vector<std::size_t>& some) const;
};

/// The buckets of one optimizer, in the order of their first slots.
class GradientBuckets {
 public:
  /// Adds the next slot, to a group or as a bucket of its own.
  void add(const std::string& name, std::optional<std::size_t> group);
  /// Adds the next slot in the place of `slot`, which becomes a bucket of its own named `retired`.
  void replace(std::size_t slot, const std::string& retired);

  [[nodiscard]] std::size_t slots() const { return bucket_of_.size(); }
  [[nodiscard]] std::vector<Bucket>& all() { return buckets_; }
  [[nodiscard]] const std::vector<Bucket>& all() const { return buckets_; }
  [[nodiscard]] std::size_t index_of(std::size_t slot) const { return bucket_of_[slot]; }
  [[nodiscard]] Bucket& of(std::size_t slot) { return buckets_[bucket_of_[slot]]; }
  [[nodiscard]] const Bucket& of(std::size_t slot) const { return buckets_[bucket_of_[slot]]; }

 private:
  std::vector<Bucket> buckets_{};
  std::vector<std::size_t> bucket_of_{};                       // by slot
  std::vector<std::optional<std::size_t>> bucket_of_group_{};  // nothing for a group without slots
};

}  // namespace kolo::internal
