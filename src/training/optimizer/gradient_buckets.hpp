// SPDX-License-Identifier: Apache-2.0
// The gradients of an optimizer, divided into buckets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "training/parameter_hashes.hpp"

namespace kolo::internal {

/// The gradients that one operation reduces: a group of slots, or a slot that is in no group.
struct Bucket {
  std::string name;
  std::optional<std::size_t> group{};
  std::vector<std::size_t> slots{};
  std::size_t first_place = 0;  // place of the first slot, for hooks; grows at each replacement
  int rounds = 0;               // submitted by this rank in the current pass

  /// The part of the operation's name after the optimizer's number.
  [[nodiscard]] std::string name_in_round(int round) const {
    // Only the operation of a single gradient has a dot after the optimizer's number or the round.
    // So, whatever a gradient's name, its operation never has the name of another operation.
    const std::string start = round == 0 ? "" : "(round " + std::to_string(round + 1) + ")";
    return start + (group ? "" : ".") + name;
  }
  /// The places of some of the bucket's slots (`GradientBucket::places`). `some` is in the order of
  /// the bucket.
  [[nodiscard]] std::vector<std::size_t> places_of(const std::vector<std::size_t>& some) const {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < slots.size() && places.size() < some.size(); ++i)
      if (slots[i] == some[places.size()]) places.push_back(first_place + i);
    return places;
  }
};

/// The buckets of one optimizer, in the order of their first slots.
class GradientBuckets {
 public:
  /// Adds the next slot, to a group or as a bucket of its own.
  void add(const std::string& name, std::optional<std::size_t> group) {
    const std::size_t slot = bucket_of_.size();
    std::size_t bucket = buckets_.size();
    if (group) {
      if (bucket_of_group_.size() <= *group) bucket_of_group_.resize(*group + 1);
      if (!bucket_of_group_[*group]) bucket_of_group_[*group] = bucket;
      bucket = *bucket_of_group_[*group];
    }
    // The operation of a group is named after the group's number and not after its gradients,
    // because the name must be the same on all ranks.
    if (bucket == buckets_.size())
      buckets_.push_back(
          {.name = group ? "(group " + std::to_string(*group) + ")" : name, .group = group});
    buckets_[bucket].slots.push_back(slot);
    bucket_of_.push_back(bucket);
    fingerprint_ = 0;
  }
  /// Adds the next slot in the place of `slot`, which becomes a bucket of its own named `retired`.
  void replace(std::size_t slot, const std::string& retired) {
    Bucket& bucket = of(slot);
    *std::find(bucket.slots.begin(), bucket.slots.end(), slot) = bucket_of_.size();
    bucket.first_place += bucket.slots.size();
    bucket_of_.push_back(std::exchange(bucket_of_[slot], buckets_.size()));
    buckets_.push_back({.name = retired, .slots = {slot}});
    fingerprint_ = 0;
  }

  /// A number of 31 bits above 0 that almost certainly differs between ranks whose buckets have
  /// different names.
  [[nodiscard]] std::int32_t fingerprint() const {
    if (fingerprint_ != 0) return fingerprint_;
    std::string names;
    for (const Bucket& bucket : buckets_) names += bucket.name + '\n';
    fingerprint_ = number_of(hash_of(std::as_bytes(std::span(names))));
    return fingerprint_;
  }

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
  mutable std::int32_t fingerprint_ = 0;                       // 0: not computed since a change
};

}  // namespace kolo::internal
