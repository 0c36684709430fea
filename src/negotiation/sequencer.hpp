// The root's part: turns complete keys into the log.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_set>
#include <vector>

#include "negotiation/catalogue.hpp"
#include "negotiation/message.hpp"

namespace kolo::negotiation {

class Sequencer {
 public:
  Sequencer(std::int64_t fusion_threshold, std::int64_t cache_capacity)
      : fusion_threshold_(fusion_threshold), cache_capacity_(cache_capacity) {}

  /// All ranks have submitted the key. A disagreement is appended at once; agreed operations
  /// gather.
  void complete(Readiness readiness);

  /// Puts what has gathered into one more batch. False if nothing has gathered.
  bool append_batch(const Catalogue& catalogue);

  void append(const Departure& departure) { append_entry(DepartureEntry{departure}); }
  void append(const Lag& stalled) { append_entry(StallEntry{stalled}); }
  void append_inquiry(const Key& key) { append_entry(InquiryEntry{key}); }
  void append_end() { append_entry(EndEntry{}); }

  /// The next entry that was not taken yet, in the order of the log.
  [[nodiscard]] bool has_entry() const { return !log_.empty(); }
  Entry take_entry();

 private:
  struct Agreed {
    Key key;
    Descriptor descriptor;
  };

  void append_entry(decltype(Entry::body) body);
  void add_member(Agreed agreed, const Catalogue& catalogue, Slot& next_slot, BatchEntry& batch);

  std::int64_t fusion_threshold_;
  std::int64_t cache_capacity_;
  std::deque<Agreed> agreed_;
  std::deque<Entry> log_;
  std::uint64_t next_sequence_ = 0;
  std::unordered_set<Key, KeyHash> agreed_once_;  // named keys that get a slot when they come again
};

}  // namespace kolo::negotiation
