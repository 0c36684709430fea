// SPDX-License-Identifier: Apache-2.0
// What one peer sends, and the receives that wait for it: which belongs to which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "messenger/messenger.hpp"

namespace kolo::internal::messenger {

class FabricChannel;

/// A receive, until it is complete.
struct Receive {
  FabricChannel* channel;
  Token token;
  Tag tag;
  std::byte* data;
  std::int64_t bytes;
};

/// A message that no receive waits for yet.
struct Arrival {
  enum class State : std::uint8_t {
    arriving,   // its bytes come next
    whole,      // they are in the buffer
    announced,  // the peer waits for a grant to send them
  };

  Tag tag;
  std::int64_t bytes;
  State state;
  std::uint32_t id = 0;  // of one that is announced
  std::unique_ptr<std::byte[]> buffer{};
  std::optional<Receive> receive{};  // came while the message was arriving
};

/// Within a tag, messages and receives meet in their order.
class Inbox {
 public:
  /// The oldest message with this tag that no receive has; null if there is none.
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
  /// It keeps its place until it is removed.
  Arrival& add(Arrival arrival) { return arrivals_.emplace_back(std::move(arrival)); }
  void remove(const Arrival& arrival) {
    arrivals_.remove_if([&](const Arrival& other) { return &other == &arrival; });
  }

  /// The peer may now send the message with this number, for this receive.
  void grant(std::uint32_t id, const Receive& receive) { granted_.emplace_back(id, receive); }
  [[nodiscard]] std::optional<Receive> take_granted(std::uint32_t id) {
    for (auto place = granted_.begin(); place != granted_.end(); ++place)
      if (place->first == id) return take(granted_, place).second;
    return std::nullopt;
  }

  /// Forgets the receives of a channel that wait for a message. Returns their number.
  [[nodiscard]] int withdraw(const FabricChannel& channel) {
    return static_cast<int>(
        std::erase_if(receives_, [&](const Receive& one) { return one.channel == &channel; }));
  }
  /// True if the peer has begun to send what others of the channel's receives wait for.
  [[nodiscard]] bool receives(const FabricChannel& channel) const {
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

  // Short: at most 16 chunks for each lane of each batch.
  std::vector<Receive> receives_{};
  std::vector<std::pair<std::uint32_t, Receive>> granted_{};
  std::list<Arrival> arrivals_{};
};

}  // namespace kolo::internal::messenger
