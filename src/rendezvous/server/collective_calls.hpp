// SPDX-License-Identifier: Apache-2.0
// The collective calls by which the ranks of a generation start their session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/message.hpp"
#include "rendezvous/server/server_options.hpp"

namespace kolo::internal::rendezvous {

/// Gathers the parts of calls that not all ranks have made yet.
class CollectiveCalls {
 public:
  struct Call {
    Time since;                                 // when its first part arrived
    std::vector<std::optional<Payload>> parts;  // by rank
    std::size_t count = 0;
    std::size_t bytes = 0;
  };

  /// Forgets all calls. Each later call has one part from each of `ranks` ranks.
  void begin(std::size_t ranks) {
    calls_.clear();
    ranks_ = ranks;
  }
  void clear() { calls_.clear(); }
  [[nodiscard]] bool empty() const { return calls_.empty(); }

  /// Adds a rank's part. Returns the call.
  const Call& add(std::int32_t rank, const Contribution& part, Time now) {
    Call& call = calls_.try_emplace(part.sequence, Call{.since = now, .parts{ranks_, std::nullopt}})
                     .first->second;
    call.parts[static_cast<std::size_t>(rank)] = Payload{part.payload};
    ++call.count;
    call.bytes += part.payload.size();
    return call;
  }
  /// Removes a complete call and returns its parts by rank.
  [[nodiscard]] std::vector<Payload> take(std::uint64_t sequence) {
    Call call = std::move(calls_.extract(sequence).mapped());
    std::vector<Payload> payloads;
    for (std::optional<Payload>& part : call.parts) payloads.push_back(std::move(*part));
    return payloads;
  }
  /// The call that began first; null without calls. Each rank makes its calls in order, so this is
  /// the call with the lowest number.
  [[nodiscard]] const Call* oldest() const {
    return calls_.empty() ? nullptr : &calls_.begin()->second;
  }

 private:
  std::size_t ranks_ = 0;
  std::map<std::uint64_t, Call> calls_{};  // by sequence number
};

}  // namespace kolo::internal::rendezvous
