// SPDX-License-Identifier: Apache-2.0
// Properties of every messenger.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "network.hpp"

namespace kolo::internal::messenger {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

// Around the limits of what is sent at once, and beyond what a sender may send unasked.
const std::vector<std::size_t> sizes{1,       31,          4095,        4096,
                                     4097,    60 * kib,    64 * kib,    256 * kib,
                                     4 * mib, 4 * mib + 1, 5 * mib + 7, 24 * mib};

TEST(Messenger, CarriesMessagesOfAllSizesBetweenAllRanks) {
  on_each_rank([](Messenger& messenger) {
    for (const std::size_t bytes : sizes) {
      SCOPED_TRACE(bytes);
      const std::vector<std::byte> sent = pattern(messenger.rank(), 0, bytes);
      std::vector<std::vector<std::byte>> received(static_cast<std::size_t>(messenger.size()),
                                                   std::vector<std::byte>(bytes));
      Transfers transfers(messenger);
      for (int distance = 1; distance < messenger.size(); ++distance) {
        const int to = (messenger.rank() + distance) % messenger.size();
        const int from = (messenger.rank() + messenger.size() - distance) % messenger.size();
        transfers.receive(from, 3, received[static_cast<std::size_t>(from)]);
        transfers.send(to, 3, sent);
      }
      transfers.finish();
      for (int from = 0; from < messenger.size(); ++from) {
        if (from == messenger.rank()) continue;
        EXPECT_TRUE(received[static_cast<std::size_t>(from)] == pattern(from, 0, bytes))
            << "from " << from;
      }
    }
  });
}

TEST(Messenger, KeepsTheOrderOfMessagesWithOneTag) {
  on_each_rank([](Messenger& messenger) {
    constexpr int messages = 200;
    const auto size_of = [](int number) -> std::size_t {
      return number % 40 == 7 ? 3 * mib : number % 3 == 0 ? 70 * kib : 100;
    };
    const int to = (messenger.rank() + 1) % messenger.size();
    const int from = (messenger.rank() + messenger.size() - 1) % messenger.size();
    if (to == messenger.rank()) return;
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> received;
    for (int number = 0; number < messages; ++number) {
      sent.push_back(pattern(messenger.rank(), number, size_of(number)));
      received.emplace_back(size_of(number));
    }
    Transfers transfers(messenger);
    // Half of them before they may have come, half of them afterwards.
    for (int number = 0; number < messages; ++number) {
      const auto at = static_cast<std::size_t>(number);
      transfers.send(to, 5, sent[at]);
      transfers.receive(from, 5, received[at]);
      if (number == messages / 2) transfers.finish();
    }
    transfers.finish();
    for (int number = 0; number < messages; ++number)
      EXPECT_TRUE(received[static_cast<std::size_t>(number)] ==
                  pattern(from, number, size_of(number)))
          << "message " << number;
  });
}

// The receiver takes the last message first: those before it, more than a sender may send unasked,
// must not be in its way.
TEST(Messenger, MessagesWithOtherTagsPass) {
  on_each_rank([](Messenger& messenger) {
    constexpr int before = 12;
    const int to = (messenger.rank() + 1) % messenger.size();
    const int from = (messenger.rank() + messenger.size() - 1) % messenger.size();
    if (to == messenger.rank()) return;
    for (const std::size_t bytes : {100 * kib, mib, 5 * mib}) {
      const std::vector<std::byte> sent = pattern(messenger.rank(), 1, bytes);
      std::vector<std::vector<std::byte>> received(before + 1, std::vector<std::byte>(bytes));
      Transfers earlier(messenger);
      Transfers last(messenger);
      for (int number = 0; number < before; ++number)
        earlier.send(to, static_cast<Tag>(10 + number), sent);
      last.send(to, 1, sent);
      last.receive(from, 1, received.back());
      // A send without a matching receive completes immediately or later, depending on the network.
      last.finish();
      for (int number = before; number-- > 0;)
        earlier.receive(from, static_cast<Tag>(10 + number),
                        received[static_cast<std::size_t>(number)]);
      earlier.finish();
      for (const std::vector<std::byte>& one : received)
        EXPECT_TRUE(one == pattern(from, 1, bytes)) << bytes;
    }
  });
}

/// Rank 0's, of all ranks.
unsigned agree_on(unsigned seed, Messenger& messenger) {
  std::vector<std::byte> bytes(sizeof seed);
  std::memcpy(bytes.data(), &seed, sizeof seed);
  Transfers transfers(messenger);
  if (messenger.rank() > 0) transfers.receive(0, 1, bytes);
  for (int rank = 1; messenger.rank() == 0 && rank < messenger.size(); ++rank)
    transfers.send(rank, 1, bytes);
  transfers.finish();
  std::memcpy(&seed, bytes.data(), sizeof seed);
  return seed;
}

TEST(Messenger, CarriesRandomTransfersOfSeveralChannels) {
  const unsigned seed_of_process = std::random_device()();
  on_each_rank([=](Messenger& messenger) {
    const unsigned seed = agree_on(seed_of_process, messenger);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    constexpr int channels = 3;
    constexpr int rounds = 60;
    struct Message {
      std::vector<std::byte> sent{};
      std::vector<std::vector<std::byte>> received{};
    };
    std::mt19937 sizes_of(seed);  // the same on all ranks
    std::mt19937 order(seed + static_cast<unsigned>(messenger.rank()));
    std::vector<std::unique_ptr<Transfers>> transfers;
    for (int channel = 0; channel < channels; ++channel)
      transfers.push_back(std::make_unique<Transfers>(messenger));
    std::vector<Message> messages(rounds * channels);
    for (int number = 0; number < rounds * channels; ++number) {
      Message& message = messages[static_cast<std::size_t>(number)];
      const std::size_t bytes = std::size_t{1} << (sizes_of() % 22);
      message.sent = pattern(messenger.rank(), number, bytes);
      message.received.resize(static_cast<std::size_t>(messenger.size()),
                              std::vector<std::byte>(bytes));
      Transfers& channel = *transfers[static_cast<std::size_t>(number % channels)];
      const auto tag = static_cast<Tag>(20 + number % channels);
      std::vector<int> peers(static_cast<std::size_t>(messenger.size()));
      std::iota(peers.begin(), peers.end(), 0);
      std::erase(peers, messenger.rank());
      std::ranges::shuffle(peers, order);
      for (const int peer : peers) channel.send(peer, tag, message.sent);
      for (const int peer : peers)
        channel.receive(peer, tag, message.received[static_cast<std::size_t>(peer)]);
      if (order() % 4 == 0) channel.step();
    }
    for (const auto& channel : transfers) channel->finish();
    for (int number = 0; number < rounds * channels; ++number)
      for (int from = 0; from < messenger.size(); ++from) {
        const Message& message = messages[static_cast<std::size_t>(number)];
        if (from == messenger.rank()) continue;
        EXPECT_TRUE(message.received[static_cast<std::size_t>(from)] ==
                    pattern(from, number, message.sent.size()))
            << "message " << number << " from " << from;
      }
  });
}

TEST(Messenger, AChannelIsUsedAgain) {
  on_each_rank([](Messenger& messenger) {
    Channel& first = messenger.open();
    EXPECT_TRUE(messenger.release(first));
    EXPECT_EQ(&messenger.open(), &first);
    EXPECT_TRUE(messenger.release(first));
    EXPECT_FALSE(messenger.uses_memory());
    EXPECT_EQ(messenger.loss(), nullptr);
  });
}

}  // namespace
}  // namespace kolo::internal::messenger
