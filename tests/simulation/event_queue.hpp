// SPDX-License-Identifier: Apache-2.0
// Future events in the order of virtual time; events at the same time in the order of their
// insertion.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "program.hpp"

namespace kolo::internal::simulation {

struct Event {
  enum class Kind : std::uint8_t { act, arrival, turn, timer, tick, done, loss, pause };
  Time at{};
  std::uint64_t order = 0;
  Kind kind = Kind::act;
  int rank = 0;
  std::uint64_t payload = 0;
};

class EventQueue {
 public:
  void push(Time at, Event::Kind kind, int rank, std::uint64_t payload = 0) {
    events_.push({at, next_order_++, kind, rank, payload});
  }
  [[nodiscard]] bool empty() const { return events_.empty(); }
  Event pop() {
    const Event first = events_.top();
    events_.pop();
    return first;
  }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint64_t next_order_ = 0;
};

}  // namespace kolo::internal::simulation
