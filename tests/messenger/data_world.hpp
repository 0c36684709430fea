// SPDX-License-Identifier: Apache-2.0
// Ranks with data connections over the loopback interface of this host.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/failure.hpp"
#include "messenger/data_listener.hpp"
#include "messenger/fabric.hpp"
#include "network.hpp"

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

/// The provider of libfabric under test; "": sockets. The environment may select that of
/// tests/messenger/verbs_double.cpp.
[[nodiscard]] inline std::string provider_under_test() {
  const char* const named = std::getenv("KOLO_TEST_FABRIC_PROVIDER");
  return named == nullptr ? KOLO_TEST_PROVIDER : named;
}

[[nodiscard]] inline std::unique_ptr<DataListener> listen(
    const ListenOptions& options,
    const std::vector<transport::SocketAddress>& addresses = {loopback()}) {
  const std::string provider = provider_under_test();
  return provider.empty() ? listen_with_sockets(options, addresses)
                          : listen_on_fabric(options, provider, addresses);
}

/// The number of open descriptors of this process.
[[nodiscard]] inline int open_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

/// True if the environment selects encryption.
[[nodiscard]] inline bool encrypts_under_test() {
  return std::getenv("KOLO_TEST_ENCRYPTED") != nullptr;
}

/// All ranks in this process, each connected in a thread of its own.
class DataWorld {
 public:
  /// `secrets`: the number of the secret of each rank, by rank; 0 for the rest.
  explicit DataWorld(int ranks, std::chrono::nanoseconds connect_timeout = std::chrono::minutes(1),
                     const std::vector<transport::SocketAddress>& at = {loopback()},
                     bool encrypts = encrypts_under_test(), const std::vector<int>& secrets = {})
      : messengers_(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      listeners_.push_back(listen({.rank = rank,
                                   .size = ranks,
                                   .secret = secret_of(number_of(secrets, rank)),
                                   .encrypts = encrypts,
                                   .connect_timeout = connect_timeout},
                                  at));
      addresses_.push_back(listeners_.back()->addresses());
    }
  }

  [[nodiscard]] const std::vector<std::vector<transport::SocketAddress>>& addresses() const {
    return addresses_;
  }

  /// Returns each rank's report.
  std::vector<std::string> connect(const std::function<void(int rank)>& while_waiting = [](int) {
  }) {
    std::vector<std::string> problems(messengers_.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < messengers_.size(); ++rank)
      threads.emplace_back([&, rank] {
        try {
          messengers_[rank] =
              listeners_[rank]->connect(addresses_, [&] { while_waiting(static_cast<int>(rank)); });
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
  static int number_of(const std::vector<int>& secrets, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    return at < secrets.size() ? secrets[at] : 0;
  }

  std::vector<std::unique_ptr<DataListener>> listeners_{};
  std::vector<std::vector<transport::SocketAddress>> addresses_{};
  std::vector<std::unique_ptr<Messenger>> messengers_;
};

/// Rank `from` sends bytes to rank 0, which arrive.
inline void expect_data_from(int from, DataWorld& world, std::size_t bytes) {
  Transfers here(world.rank(0));
  Transfers there(world.rank(from));
  const std::vector<std::byte> sent = pattern(from, 0, bytes);
  std::vector<std::byte> received(bytes);
  here.receive(from, 1, received);
  there.send(0, 1, sent);
  while (here.pending() + there.pending() > 0) {
    here.step();
    there.step();
  }
  EXPECT_TRUE(received == sent);
}

}  // namespace kolo::internal::messenger
