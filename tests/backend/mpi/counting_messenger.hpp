// SPDX-License-Identifier: Apache-2.0
// A messenger that counts the messages sent through another messenger.
#pragma once

#include <deque>
#include <map>
#include <numeric>
#include <vector>

#include "messenger/messenger.hpp"

namespace kolo::internal::backend {

class CountingMessenger : public messenger::Messenger {
 public:
  /// `below` must outlive this object.
  explicit CountingMessenger(messenger::Messenger& below) : below_(below) {}

  [[nodiscard]] std::int64_t sent_to(int peer) const {
    const auto found = sent_.find(peer);
    return found == sent_.end() ? 0 : found->second;
  }
  [[nodiscard]] std::int64_t sent_to_all() const {
    return std::accumulate(sent_.begin(), sent_.end(), std::int64_t{0},
                           [](std::int64_t sum, const auto& peer) { return sum + peer.second; });
  }

  [[nodiscard]] std::string_view name() const override { return below_.name(); }
  [[nodiscard]] int rank() const override { return below_.rank(); }
  [[nodiscard]] int size() const override { return below_.size(); }
  [[nodiscard]] messenger::Tag tag_count() const override { return below_.tag_count(); }
  [[nodiscard]] messenger::Channel& open() override {
    return channels_.emplace_back(*this, below_.open());
  }
  [[nodiscard]] bool release(messenger::Channel& channel) noexcept override {
    return below_.release(static_cast<CountingChannel&>(channel).below);
  }
  bool progress() override { return below_.progress(); }
  [[nodiscard]] bool may_sleep() override { return below_.may_sleep(); }
  [[nodiscard]] bool uses_memory() const override { return below_.uses_memory(); }
  void close(std::chrono::nanoseconds patience) noexcept override { below_.close(patience); }

 private:
  struct CountingChannel : messenger::Channel {
    CountingChannel(CountingMessenger& owning, messenger::Channel& counted)
        : owner(owning), below(counted) {}
    void send(int peer, messenger::Tag tag, const std::byte* data, std::int64_t bytes,
              messenger::Token token) override {
      owner.sent_[peer] += bytes;
      below.send(peer, tag, data, bytes, token);
    }
    void receive(int peer, messenger::Tag tag, std::byte* data, std::int64_t bytes,
                 messenger::Token token) override {
      below.receive(peer, tag, data, bytes, token);
    }
    void progress(std::vector<messenger::Token>& done) override { below.progress(done); }

    CountingMessenger& owner;
    messenger::Channel& below;
  };

  messenger::Messenger& below_;
  std::deque<CountingChannel> channels_{};
  std::map<int, std::int64_t> sent_{};
};

}  // namespace kolo::internal::backend
