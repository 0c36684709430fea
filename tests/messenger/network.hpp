// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the tests of all messengers. The file that is linked selects the
// messenger.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "messenger/messenger.hpp"

namespace kolo::internal::messenger {

/// Calls `body` simultaneously for each rank of this process, each time with a messenger of its
/// own. All messengers are closed orderly afterwards.
void on_each_rank(const std::function<void(Messenger&)>& body);

/// Transfers of one rank.
class Transfers {
 public:
  explicit Transfers(Messenger& messenger) : messenger_(messenger), channel_(messenger.open()) {}
  ~Transfers() { static_cast<void>(messenger_.release(channel_)); }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void send(int peer, Tag tag, const std::vector<std::byte>& data) {
    ++pending_;
    channel_.send(peer, tag, data.data(), static_cast<std::int64_t>(data.size()),
                  {nullptr, &pending_});
  }
  void receive(int peer, Tag tag, std::vector<std::byte>& data) {
    ++pending_;
    channel_.receive(peer, tag, data.data(), static_cast<std::int64_t>(data.size()),
                     {nullptr, &pending_});
  }
  /// Returns true if a transfer has completed.
  bool step() {
    done_.clear();
    channel_.progress(done_);
    for (const Token& token : done_) --*token.counter;
    return !done_.empty();
  }
  [[nodiscard]] int pending() const { return pending_; }

  /// Steps until all transfers are complete.
  void finish() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (pending_ > 0) {
      if (step()) continue;
      ASSERT_LT(std::chrono::steady_clock::now(), until) << pending_ << " transfers are pending";
      std::this_thread::yield();
    }
  }

 private:
  Messenger& messenger_;
  Channel& channel_;
  int pending_ = 0;
  std::vector<Token> done_{};
};

/// Bytes that depend on the sender, the message and the position.
[[nodiscard]] inline std::vector<std::byte> pattern(int sender, int number, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] =
        static_cast<std::byte>(i * 31 + (i >> 12) + static_cast<std::size_t>(sender * 7 + number));
  return data;
}

}  // namespace kolo::internal::messenger
