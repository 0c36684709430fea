// SPDX-License-Identifier: Apache-2.0
// The shared-memory transport, with ranks as objects of one process and plain memory for their
// rings.
#include "transport/shm_transport.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kolo/error.hpp"

namespace kolo::internal::transport {
namespace {

constexpr std::size_t ring_bytes = 16 << 10;

/// Bytes that depend on who sends them to whom, as which message, and where they stand.
Message pattern(int from, int to, int number, std::size_t bytes) {
  Message message(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    message[i] = static_cast<std::byte>(i * 31 + i / 256 +
                                        static_cast<std::size_t>(from * 7 + to * 3 + number));
  return message;
}

bool equal(std::span<const std::byte> a, const Message& b) { return std::ranges::equal(a, b); }

class Host {
 public:
  explicit Host(std::vector<int> ranks, std::size_t max_unsent = max_unsent_bytes)
      : ranks_(std::move(ranks)), words_(ranks_.size()) {
    const std::size_t lines = ShmTransport::bytes_needed() / sizeof(Line);
    std::vector<node::LocalPeer> neighbors;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      memory_.push_back(std::make_unique<Line[]>(lines));
      bells_.push_back(std::make_unique<node::Doorbell>(words_[i], node::Doorbell::open()));
      neighbors.push_back({memory_[i][0].bytes, bells_[i].get()});
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      ends_.push_back(
          std::make_unique<ShmTransport>(neighbors, static_cast<int>(i), ranks_, max_unsent));
  }

  [[nodiscard]] ShmTransport& end(int rank) { return *ends_[index_of(rank)]; }
  [[nodiscard]] const node::Doorbell& bell(int rank) { return *bells_[index_of(rank)]; }
  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  /// The words of a rank's memory: in its ring to rank 0 first the bytes written, from the ninth
  /// on the bytes read, from the 17th on the messages.
  [[nodiscard]] std::uint64_t* words(int rank) {
    return reinterpret_cast<std::uint64_t*>(memory_[index_of(rank)][0].bytes);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  [[nodiscard]] std::size_t index_of(int rank) const {
    return static_cast<std::size_t>(std::ranges::find(ranks_, rank) - ranks_.begin());
  }

  std::vector<int> ranks_;
  std::vector<std::unique_ptr<Line[]>> memory_{};
  std::vector<node::BellWord> words_;
  std::vector<std::unique_ptr<node::Doorbell>> bells_{};
  std::vector<std::unique_ptr<ShmTransport>> ends_{};
};

/// The messages that have arrived at one end, in order.
std::vector<Message> poll(ShmTransport& end) {
  std::vector<Message> arrived;
  end.poll([&](int, std::span<const std::byte> message) {
    arrived.emplace_back(message.begin(), message.end());
  });
  return arrived;
}

TEST(ShmTransport, SaysWhetherAnythingMoved) {
  Host host({0, 1});
  const auto nothing = [](int, std::span<const std::byte>) { FAIL(); };
  EXPECT_TRUE(host.end(0).flushed());
  EXPECT_FALSE(host.end(0).poll(nothing));
  host.end(0).send(1, pattern(0, 1, 0, 5));
  EXPECT_TRUE(host.end(0).flushed());
  int from = -1;
  EXPECT_TRUE(host.end(1).poll([&](int peer, std::span<const std::byte> message) {
    from = peer;
    EXPECT_TRUE(equal(message, pattern(0, 1, 0, 5)));
  }));
  EXPECT_EQ(from, 0);
  EXPECT_FALSE(host.end(1).poll(nothing));
  EXPECT_FALSE(host.end(0).poll(nothing));
}

TEST(ShmTransport, RankAloneHasNobody) {
  Host host({3});
  EXPECT_TRUE(host.end(3).flushed());
  EXPECT_FALSE(host.end(3).poll([](int, std::span<const std::byte>) { FAIL(); }));
  EXPECT_ANY_THROW(host.end(3).send(3, {}));
}

TEST(ShmTransport, KnowsPeersByTheirRank) {
  const std::vector<int> ranks{4, 9, 17};
  Host host(ranks);
  for (const int other : {9, 17}) {
    host.end(4).send(other, pattern(4, other, 0, 3));
    host.end(other).send(4, pattern(other, 4, 0, 3));
  }
  const std::map<int, std::vector<int>> expected{{4, {9, 17}}, {9, {4}}, {17, {4}}};
  for (const int to : ranks) {
    std::vector<int> peers;
    host.end(to).poll([&](int peer, std::span<const std::byte> message) {
      peers.push_back(peer);
      EXPECT_TRUE(equal(message, pattern(peer, to, 0, 3)));
    });
    EXPECT_THAT(peers, testing::UnorderedElementsAreArray(expected.at(to)));
  }
}

TEST(ShmTransport, OnlyTheFirstRankHasRingsToAllOthers) {
  Host host({4, 9, 17});
  for (const int stranger : {4, 5, 17})
    EXPECT_THAT([&] { host.end(stranger == 4 ? 4 : 9).send(stranger, {}); },
                testing::ThrowsMessage<BackendError>(
                    testing::HasSubstr("no ring to rank " + std::to_string(stranger))));
}

/// Sends so many messages of these lengths; both ends have turns until all have come.
void expect_carried(Host& host, const std::vector<std::size_t>& lengths) {
  for (std::size_t i = 0; i < lengths.size(); ++i)
    host.end(0).send(1, pattern(0, 1, static_cast<int>(i), lengths[i]));
  std::size_t arrived = 0;
  for (bool moved = true; std::exchange(moved, false);) {
    moved |= host.end(1).poll([&](int, std::span<const std::byte> message) {
      ASSERT_LT(arrived, lengths.size());
      EXPECT_TRUE(equal(message, pattern(0, 1, static_cast<int>(arrived), lengths[arrived])))
          << "message " << arrived << " of " << lengths[arrived] << " bytes";
      ++arrived;
    });
    moved |= host.end(0).poll([](int, std::span<const std::byte>) { FAIL(); });
  }
  ASSERT_EQ(arrived, lengths.size());
  EXPECT_TRUE(host.end(0).flushed());
}

TEST(ShmTransport, CarriesEveryLengthAroundTheRingsSize) {
  // One after the other in one host, so that they begin at ever other places of the ring.
  Host host({0, 1});
  for (const std::size_t rings : {1U, 2U, 5U})
    for (std::size_t length = rings * ring_bytes - 50; length < rings * ring_bytes + 50; ++length)
      expect_carried(host, {length, 1});
}

TEST(ShmTransport, CarriesEveryLengthFromEveryPlaceNearTheRingsEnd) {
  for (std::size_t before = ring_bytes - 128; before < ring_bytes; before += 16)
    for (std::size_t length = 0; length < 150; ++length) {
      Host host({0, 1});
      expect_carried(host, {before - 16});
      expect_carried(host, {length, 3, length});
      if (testing::Test::HasFailure()) return;
    }
}

TEST(ShmTransport, MessagesWithoutBytesComeInOrder) {
  Host host({0, 1});
  expect_carried(host, std::vector<std::size_t>(3000, 0));
  expect_carried(host, {0, 1, 0, 0, 40'000, 0, 2});
}

TEST(ShmTransport, AFullRingDrains) {
  Host host({0, 1, 2});
  constexpr std::size_t large = 3 * ring_bytes;
  host.end(0).send(1, pattern(0, 1, 0, large));
  host.end(0).send(1, pattern(0, 1, 1, 7));
  EXPECT_FALSE(host.end(0).flushed());
  // It holds up nobody else.
  host.end(0).send(2, pattern(0, 2, 0, 9));
  EXPECT_THAT(poll(host.end(2)), testing::ElementsAre(pattern(0, 2, 0, 9)));
  EXPECT_FALSE(host.end(0).flushed());
  EXPECT_TRUE(poll(host.end(0)).empty());  // no room yet
  std::vector<Message> arrived;
  for (int turn = 0; turn < 5; ++turn) {
    for (Message& message : poll(host.end(1))) arrived.push_back(std::move(message));
    EXPECT_TRUE(poll(host.end(0)).empty());
  }
  EXPECT_THAT(arrived, testing::ElementsAre(pattern(0, 1, 0, large), pattern(0, 1, 1, 7)));
  EXPECT_TRUE(host.end(0).flushed());
}

TEST(ShmTransport, RingsForWhatCameAndForRoom) {
  Host host({0, 1});
  const auto woken = [&](int rank) {
    host.bell(rank).listen(node::Listener::waiter, node::WakeReason::messages);
    return [&host, rank] {
      const auto since = std::chrono::steady_clock::now();
      host.bell(rank).sleep(node::Listener::waiter, std::chrono::seconds(10));
      return std::chrono::steady_clock::now() - since < std::chrono::seconds(10);
    };
  };
  const auto receiver_was_woken = woken(1);
  host.end(0).send(1, Message(2 * ring_bytes));
  EXPECT_TRUE(receiver_was_woken());
  const auto sender_was_woken = woken(0);
  EXPECT_TRUE(poll(host.end(1)).empty());  // a part of it
  EXPECT_TRUE(sender_was_woken());
}

TEST(ShmTransport, AReceiverMaySend) {
  Host host({0, 1});
  constexpr int hops = 5000;
  int arrived = 0;
  const auto pass_on = [&](int own) {
    return [&, own](int peer, std::span<const std::byte> message) {
      EXPECT_TRUE(equal(message, pattern(peer, own, arrived, 40)));
      if (++arrived < hops) host.end(own).send(peer, pattern(own, peer, arrived, 40));
    };
  };
  host.end(0).send(1, pattern(0, 1, 0, 40));
  while (host.end(1).poll(pass_on(1)) || host.end(0).poll(pass_on(0))) {
  }
  EXPECT_EQ(arrived, hops);
}

TEST(ShmTransport, AReceiverMayThrow) {
  // The message passed to the receiver has arrived; the next one arrives with the next poll.
  Host host({0, 1});
  const std::vector<std::size_t> lengths{10, ring_bytes - 40, 20, 2 * ring_bytes, 30};
  for (std::size_t i = 0; i < lengths.size(); ++i)
    host.end(0).send(1, pattern(0, 1, static_cast<int>(i), lengths[i]));
  int arrived = 0;
  int thrown = 0;
  for (int turn = 0; turn < 20; ++turn) {
    try {
      host.end(1).poll([&](int, std::span<const std::byte> message) {
        const auto number = static_cast<std::size_t>(arrived);
        EXPECT_TRUE(equal(message, pattern(0, 1, arrived, lengths[number]))) << number;
        ++arrived;
        throw std::runtime_error("on purpose");
      });
    } catch (const std::runtime_error&) {
      ++thrown;
    }
    host.end(0).poll([](int, std::span<const std::byte>) { FAIL(); });
  }
  EXPECT_EQ(arrived, static_cast<int>(lengths.size()));
  EXPECT_EQ(thrown, arrived);
}

/// The messages from one rank to another: both derive them from the seed.
class Flow {
 public:
  Flow(int from, int to, unsigned seed)
      : from_(from), to_(to), random_(seed * 10'000 + static_cast<unsigned>(from * 100 + to)) {}

  Message next() {
    constexpr std::size_t most[] = {1, 100, 1000, ring_bytes, 4 * ring_bytes};
    const std::size_t bytes = random_() % most[random_() % std::size(most)];
    return pattern(from_, to_, number_++, bytes);
  }

 private:
  int from_;
  int to_;
  std::mt19937 random_;
  int number_ = 0;
};

/// One rank that sends `messages` to every other with which it has rings, and gets as many from
/// each.
class Talker {
 public:
  Talker(Host& host, int rank, int messages, unsigned seed) : end_(host.end(rank)) {
    for (const int peer : host.ranks()) {
      if ((peer == 0) == (rank == 0)) continue;
      to_send_.insert({peer, {Flow(rank, peer, seed), messages}});
      to_come_.insert({peer, {Flow(peer, rank, seed), messages}});
    }
  }

  /// True if anything moved.
  bool take_turn(bool sends) {
    bool moved = false;
    for (auto& [peer, flow] : to_send_)
      if (sends && flow.left > 0) {
        end_.send(peer, flow.messages.next());
        --flow.left;
        moved = true;
      }
    return end_.poll([&](int peer, std::span<const std::byte> message) {
      Flows& flow = to_come_.at(peer);
      EXPECT_TRUE(equal(message, flow.messages.next())) << flow.left << " were left from " << peer;
      --flow.left;
    }) || moved;
  }

  [[nodiscard]] bool done() const {
    const auto none_left = [](const auto& entry) { return entry.second.left == 0; };
    return end_.flushed() && std::ranges::all_of(to_send_, none_left) &&
           std::ranges::all_of(to_come_, none_left);
  }

 private:
  struct Flows {
    Flow messages;
    int left;
  };

  ShmTransport& end_;
  std::map<int, Flows> to_send_{};
  std::map<int, Flows> to_come_{};
};

TEST(ShmTransport, CarriesRandomMessagesBothWaysInAnyOrderOfTurns) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Host host({0, 1, 2, 3});
    std::mt19937 random(seed);
    std::deque<Talker> talkers;
    for (const int rank : host.ranks()) talkers.emplace_back(host, rank, 60, seed);
    for (int idle = 0; !std::ranges::all_of(talkers, &Talker::done);) {
      Talker& talker = talkers[random() % talkers.size()];
      idle = talker.take_turn(random() % 2 == 0) ? 0 : idle + 1;
      ASSERT_LT(idle, 10'000) << "nothing moves";
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(ShmTransport, CarriesRandomMessagesBetweenThreadsThatSleep) {
  constexpr std::chrono::seconds too_long{30};
  constexpr unsigned seed = 17;
  Host host({0, 1, 2});
  std::vector<std::thread> threads;
  for (const int rank : host.ranks())
    threads.emplace_back([&, rank] {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      Talker talker(host, rank, 200, seed);
      const node::Doorbell& bell = host.bell(rank);
      while (!talker.done()) {
        if (talker.take_turn(true)) continue;
        bell.listen(node::Listener::thread, node::WakeReason::messages);
        if (!talker.take_turn(true) && !talker.done()) {
          const auto since = std::chrono::steady_clock::now();
          bell.sleep(node::Listener::thread, too_long);
          if (std::chrono::steady_clock::now() - since >= too_long) {
            ADD_FAILURE() << "nobody woke rank " << rank;
            return;
          }
        }
        bell.stop_listening();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

/// The result of a message from rank 1 after damage to rank 1's memory.
std::string outcome_of_damage(std::size_t word, std::uint64_t value) {
  Host host({0, 1});
  host.end(1).send(0, pattern(1, 0, 0, 100));
  host.words(1)[word] = value;
  try {
    return poll(host.end(0)).size() == 1 ? "arrived" : "nothing";
  } catch (const BackendError& error) {
    return error.what();
  }
}

TEST(ShmTransport, RefusesWhatIsNoMessage) {
  EXPECT_EQ(outcome_of_damage(0, 128), "arrived");  // as it was
  constexpr std::uint64_t most = ~std::uint64_t{0};
  for (const std::uint64_t written : {std::uint64_t{120}, ring_bytes + 16, most, most - 15})
    EXPECT_THAT(outcome_of_damage(0, written), testing::HasSubstr("rank 1")) << written;
  for (const std::uint64_t length : {most, most - 15, std::uint64_t{1} << 40})
    EXPECT_THAT(outcome_of_damage(16, length), testing::HasSubstr("damaged")) << length;
}

TEST(ShmTransport, DoesNotWriteIntoADamagedRing) {
  Host host({0, 1});
  host.words(1)[8] = 7;
  EXPECT_THROW(host.end(1).send(0, pattern(1, 0, 0, 100)), BackendError);
  host.words(1)[8] = std::uint64_t{1} << 40;
  EXPECT_THROW(host.end(1).send(0, pattern(1, 0, 1, 100)), BackendError);
}

TEST(ShmTransport, KeepsABoundedQueueForARankThatDoesNotRead) {
  constexpr std::size_t max_unsent = 100'000;
  constexpr std::size_t message_bytes = 1000;
  Host host({0, 1, 2}, max_unsent);
  std::size_t sent = 0;
  const auto send_forever = [&] {
    for (;; ++sent) host.end(0).send(1, Message(message_bytes));
  };
  EXPECT_THAT(send_forever, testing::ThrowsMessage<BackendError>(
                                testing::HasSubstr("rank 1 does not read its messages")));
  EXPECT_GT(sent * message_bytes, max_unsent * 9 / 10);
  EXPECT_LT(sent * message_bytes, max_unsent + ring_bytes);
  // Only what waits counts: another rank that reads may be sent much more.
  for (std::size_t i = 0; i < 4 * max_unsent / message_bytes; ++i) {
    host.end(0).send(2, Message(message_bytes));
    EXPECT_EQ(poll(host.end(2)).size(), 1U);
  }
}

}  // namespace
}  // namespace kolo::internal::transport
