// SPDX-License-Identifier: Apache-2.0
// The operations that this rank has submitted to negotiation and that are not answered yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "negotiation/replay/replay.hpp"
#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {

class OwnOperations {
 public:
  void add(Ticket ticket, const Key& key, const Descriptor& descriptor) {
    operations_.emplace(key, Operation{ticket, next_order_++, descriptor});
  }

  [[nodiscard]] bool empty() const { return operations_.empty(); }
  [[nodiscard]] bool contains(const Key& key) const { return operations_.contains(key); }

  struct Taken {
    Ticket ticket;
    OperationType type;
  };
  /// Removes an operation that is answered. Throws ProtocolError if this rank did not submit it.
  Taken take(const Key& key) {
    const auto found = operations_.find(key);
    if (found == operations_.end())
      throw ProtocolError(to_string(key) + " was answered, but this rank did not submit it");
    const Taken taken{found->second.ticket, found->second.descriptor.type};
    operations_.erase(found);
    return taken;
  }

  /// Removes all operations of a set and returns them in the order of submission.
  [[nodiscard]] std::vector<Withdrawn> take_all(SetId set) {
    std::vector<Withdrawn> taken;
    for (auto one = operations_.begin(); one != operations_.end();) {
      auto& [key, operation] = *one;
      if (key.set != set) {
        ++one;
        continue;
      }
      taken.push_back({operation.order, operation.ticket, key, std::move(operation.descriptor)});
      one = operations_.erase(one);
    }
    std::ranges::sort(taken, {}, &Withdrawn::order);
    return taken;
  }

 private:
  struct Operation {
    Ticket ticket;
    std::uint64_t order;  // number of earlier submissions
    Descriptor descriptor;
  };

  std::unordered_map<Key, Operation, KeyHash> operations_{};
  std::uint64_t next_order_ = 0;
};

}  // namespace kolo::internal::negotiation
