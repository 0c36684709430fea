// SPDX-License-Identifier: Apache-2.0
// Matches the messages that arrive from one rank with the receives that wait for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "messenger/buffer_pool.hpp"
#include "messenger/messenger.hpp"

namespace kolo::internal::messenger {

class ConnectedChannel;

/// A receive that is not complete.
struct Receive {
  ConnectedChannel* channel;
  Token token;
  Tag tag;
  std::byte* data;
  std::int64_t bytes;
};

/// A message that arrived before its receive.
struct Arrival {
  enum class State : std::uint8_t {
    arriving,   // the next payload has its bytes
    whole,      // the buffer holds all bytes
    announced,  // the peer keeps the bytes until it gets a grant
  };

  Tag tag;
  std::int64_t bytes;
  State state;
  std::uint32_t id = 0;  // set if announced
  Buffer buffer{};
  std::optional<Receive> receive{};  // set if it was posted while the message was arriving
};

/// Matches the messages of one peer with the receives that wait for them. Among equal tags,
/// messages and receives match in order.
class Inbox {
 public:
  /// The oldest message with this tag that has no receive yet; null if there is none.
  [[nodiscard]] Arrival* find_arrival(Tag tag) {
    for (Arrival& arrival : arrivals_)
      if (arrival.tag == tag && !arrival.receive) return &arrival;
    return nullptr;
  }
  /// Removes the oldest receive for this tag and returns it.
  [[nodiscard]] std::optional<Receive> take_receive(Tag tag) {
    for (auto place = receives_.begin(); place != receives_.end(); ++place)
      if (place->tag == tag) return take(receives_, place);
    return std::nullopt;
  }

  void add(const Receive& receive) { receives_.push_back(receive); }
  /// The message keeps its address until it is removed.
  Arrival& add(Arrival arrival) { return arrivals_.emplace_back(std::move(arrival)); }
  /// Returns the message's buffer.
  Buffer remove(Arrival& arrival) {
    Buffer buffer = std::move(arrival.buffer);
    arrivals_.remove_if([&](const Arrival& other) { return &other == &arrival; });
    return buffer;
  }

  /// Records that the peer may send the payload with this id, for this receive.
  void grant(std::uint32_t id, const Receive& receive) { granted_.emplace_back(id, receive); }
  [[nodiscard]] std::optional<Receive> take_granted(std::uint32_t id) {
    for (auto place = granted_.begin(); place != granted_.end(); ++place)
      if (place->first == id) return take(granted_, place).second;
    return std::nullopt;
  }

  /// Removes the channel's receives that no message has matched yet. Returns their number.
  [[nodiscard]] int withdraw(const ConnectedChannel& channel) {
    return static_cast<int>(
        std::erase_if(receives_, [&](const Receive& one) { return one.channel == &channel; }));
  }
  /// True if the peer may be sending data for another of the channel's receives.
  [[nodiscard]] bool receives(const ConnectedChannel& channel) const {
    for (const Arrival& arrival : arrivals_)
      if (arrival.receive && arrival.receive->channel == &channel) return true;
    for (const auto& [id, receive] : granted_)
      if (receive.channel == &channel) return true;
    return false;
  }

 private:
  template <typename Item>
  static Item take(std::vector<Item>& from, typename std::vector<Item>::iterator place) {
    Item item = std::move(*place);
    from.erase(place);
    return item;
  }

  // A short list: at most 16 chunks for each lane of each batch.
  std::vector<Receive> receives_{};
  std::vector<std::pair<std::uint32_t, Receive>> granted_{};
  std::list<Arrival> arrivals_{};
};

}  // namespace kolo::internal::messenger
