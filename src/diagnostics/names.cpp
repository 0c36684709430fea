// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/names.hpp"

#include <functional>
#include <limits>

namespace kolo::internal::diagnostics {
namespace {

constexpr std::uint32_t empty = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t initial_buckets = 1024;

std::size_t hash_of(std::string_view text, std::uint32_t set) {
  return std::hash<std::string_view>{}(text) ^ (set * std::size_t{0x9e3779b97f4a7c15U});
}

}  // namespace

Names::Names(std::uint64_t kept) : kept_(kept), buckets_(initial_buckets, empty) {}

std::uint32_t Names::find(std::string_view text, std::uint32_t set, std::uint64_t use) {
  const std::size_t hash = hash_of(text, set);
  const std::size_t mask = buckets_.size() - 1;
  // Linear probing. Names are only forgotten by a rebuild of the table, so there are no deleted
  // buckets.
  for (std::size_t bucket = hash & mask; buckets_[bucket] != empty; bucket = (bucket + 1) & mask) {
    Entry& entry = entries_[buckets_[bucket]];
    if (entry.hash != hash || entry.set != set || *entry.text != text) continue;
    entry.last_use = use;
    return buckets_[bucket];
  }
  return add(text, set, hash, use);
}

std::uint32_t Names::add(std::string_view text, std::uint32_t set, std::size_t hash,
                         std::uint64_t use) {
  if (2 * (entries_.size() - free_.size() + 1) > buckets_.size()) make_room(use);
  std::uint32_t id = static_cast<std::uint32_t>(entries_.size());
  if (free_.empty()) {
    entries_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  entries_[id] = {
      .text = std::make_shared<const std::string>(text), .set = set, .last_use = use, .hash = hash};
  insert(id);
  return id;
}

/// Forgets old names and resizes the table to be at most a quarter full. It may be half full before
/// the next call, so the cost is spread over the additions in between.
void Names::make_room(std::uint64_t use) {
  bool forgot = false;
  for (std::uint32_t id = 0; id < entries_.size(); ++id) {
    Entry& entry = entries_[id];
    // A name with pending operations is in use, however old its last submission is.
    if (entry.text == nullptr || entry.pending > 0 || use - entry.last_use <= kept_) continue;
    entry = {};
    free_.push_back(id);
    forgot = true;
  }
  if (forgot) ++losses_;
  std::size_t size = buckets_.size();
  while (4 * (entries_.size() - free_.size()) > size) size *= 2;
  buckets_.assign(size, empty);
  for (std::uint32_t id = 0; id < entries_.size(); ++id)
    if (entries_[id].text != nullptr) insert(id);
}

void Names::insert(std::uint32_t id) {
  const std::size_t mask = buckets_.size() - 1;
  std::size_t bucket = entries_[id].hash & mask;
  while (buckets_[bucket] != empty) bucket = (bucket + 1) & mask;
  buckets_[bucket] = id;
}

}  // namespace kolo::internal::diagnostics
