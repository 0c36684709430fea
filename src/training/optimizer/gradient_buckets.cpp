// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/gradient_buckets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kolo::internal {

// Only the operation of a single gradient has a dot after the optimizer's number or the round. So a
// gradient cannot be named such that its operation has the name of another one.
std::string Bucket::name_in_round(int round) const {
  const std::string start = round == 0 ? "" : fmt::format("(round {})", round + 1);
  return start + (group ? "" : ".") + name;
}

std::vector<std::size_t> Bucket::places_of(const std::vector<std::size_t>& some) const {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < slots.size() && places.size() < some.size(); ++i)
    if (slots[i] == some[places.size()]) places.push_back(first_place + i);
  return places;
}

void GradientBuckets::add(const std::string& name, std::optional<std::size_t> group) {
  const std::size_t slot = bucket_of_.size();
  std::size_t bucket = buckets_.size();
  if (group) {
    if (bucket_of_group_.size() <= *group) bucket_of_group_.resize(*group + 1);
    if (!bucket_of_group_[*group]) bucket_of_group_[*group] = bucket;
    bucket = *bucket_of_group_[*group];
  }
  // The operation of a group is named after the group's number and not after its gradients, because
  // the name must be the same on all ranks.
  if (bucket == buckets_.size())
    buckets_.push_back({.name = group ? fmt::format("(group {})", *group) : name, .group = group});
  buckets_[bucket].slots.push_back(slot);
  bucket_of_.push_back(bucket);
}

void GradientBuckets::replace(std::size_t slot, const std::string& retired) {
  Bucket& bucket = of(slot);
  *std::find(bucket.slots.begin(), bucket.slots.end(), slot) = bucket_of_.size();
  bucket.first_place += bucket.slots.size();
  bucket_of_.push_back(std::exchange(bucket_of_[slot], buckets_.size()));
  buckets_.push_back({.name = retired, .slots = {slot}});
}

}  // namespace kolo::internal
