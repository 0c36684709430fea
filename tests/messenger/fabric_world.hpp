// SPDX-License-Identifier: Apache-2.0
// Ranks connected by libfabric over the loopback interface of this host.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/failure.hpp"
#include "messenger/fabric.hpp"

namespace kolo::internal::messenger {

/// The address 127.0.0.`last`.
[[nodiscard]] inline transport::SocketAddress loopback(std::uint8_t last = 1) {
  transport::SocketAddress address;
  address.family = AF_INET;
  address.bytes = {127, 0, 0, last};
  return address;
}

[[nodiscard]] inline transport::Secret secret_of(int number) {
  transport::Secret secret{};
  for (std::size_t i = 0; i < secret.size(); ++i)
    secret[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(number));
  return secret;
}

/// The provider under test: Kolo's default, unless the environment selects that of
/// tests/messenger/verbs_double.cpp.
[[nodiscard]] inline std::string provider_under_test() {
  const char* const named = std::getenv("KOLO_TEST_FABRIC_PROVIDER");
  return named == nullptr ? default_provider : named;
}

/// All ranks in this process, each connected in a thread of its own.
class FabricWorld {
 public:
  explicit FabricWorld(int ranks,
                       std::chrono::nanoseconds connect_timeout = std::chrono::minutes(1),
                       const std::vector<transport::SocketAddress>& at = {loopback()})
      : messengers_(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      listeners_.push_back(listen_on_fabric({.rank = rank,
                                             .size = ranks,
                                             .provider = provider_under_test(),
                                             .connect_timeout = connect_timeout},
                                            at));
      addresses_.push_back(listeners_.back()->addresses());
    }
  }

  [[nodiscard]] const std::vector<std::vector<transport::SocketAddress>>& addresses() const {
    return addresses_;
  }

  /// `secrets`: the number of each rank's secret, by rank; 0 for the rest. Returns each rank's
  /// report.
  std::vector<std::string> connect(
      const std::vector<int>& secrets = {},
      const std::function<void(int rank)>& while_waiting = [](int) {}) {
    std::vector<std::string> problems(messengers_.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < messengers_.size(); ++rank)
      threads.emplace_back([&, rank] {
        const int secret = rank < secrets.size() ? secrets[rank] : 0;
        try {
          messengers_[rank] = listeners_[rank]->connect(
              addresses_, secret_of(secret), [&] { while_waiting(static_cast<int>(rank)); });
        } catch (...) {
          problems[rank] = message_of_current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return problems;
  }

  [[nodiscard]] Messenger& rank(int number) {
    return *messengers_[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] std::vector<std::unique_ptr<Messenger>>& all() { return messengers_; }

 private:
  std::vector<std::unique_ptr<FabricListener>> listeners_{};
  std::vector<std::vector<transport::SocketAddress>> addresses_{};
  std::vector<std::unique_ptr<Messenger>> messengers_;
};

}  // namespace kolo::internal::messenger
