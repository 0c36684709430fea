// The last events, in memory that is taken once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "diagnostics/event.hpp"

namespace kolo::diagnostics {

/// Not thread-safe.
class EventRing {
 public:
  /// Keeps the last `capacity` events; none if that is 0.
  explicit EventRing(std::size_t capacity) : events_(capacity) {}

  void push(const Event& event) {
    if (events_.empty()) return;
    events_[next_] = event;
    if (++next_ == events_.size()) next_ = 0;
    ++total_;
  }

  [[nodiscard]] std::size_t capacity() const { return events_.size(); }
  /// How many were ever pushed.
  [[nodiscard]] std::uint64_t total() const { return total_; }

  /// Calls `use(event)` for those that are kept, oldest first.
  template <typename Use>
  void for_each(Use use) const {
    const bool full = total_ >= events_.size();
    for (std::size_t i = full ? next_ : 0; full && i < events_.size(); ++i) use(events_[i]);
    for (std::size_t i = 0; i < next_; ++i) use(events_[i]);
  }

 private:
  std::vector<Event> events_;
  std::size_t next_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace kolo::diagnostics
