// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi_transport.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <string>

#include "kolo/error.hpp"

namespace kolo::internal::transport {
namespace {

class MpiTransportTest : public testing::Test {
 protected:
  MpiTransportTest() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiTransportTest() override { MPI_Comm_free(&comm_); }

  /// Polls until `done`, then until the own messages are gone.
  template <typename Done>
  static void poll_until(Transport& transport, const Transport::Receiver& receive, Done done) {
    while (!done() || !transport.flushed()) transport.poll(receive);
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
};

/// Bytes that depend on who sends them, as which message, and where they stand.
Message pattern(int sender, int number, std::size_t bytes) {
  Message message(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    message[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(sender * 7 + number));
  return message;
}

bool equal(std::span<const std::byte> a, const Message& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

TEST_F(MpiTransportTest, KeepsTheOrderOfManyMessagesFromAllPeers) {
  constexpr int messages = 500;
  // Now and then one that is too large to be sent at once, so that a small one could overtake it.
  const auto size_of_message = [](int number) -> std::size_t {
    constexpr std::array<std::size_t, 4> small{0, 3, 1024, 1025};
    return number % 50 == 2 ? 200'000 : small[static_cast<std::size_t>(number) % small.size()];
  };
  MpiTransport transport(comm_);
  for (int number = 0; number < messages; ++number)
    for (int peer = 0; peer < size_; ++peer)
      transport.send(peer, pattern(rank_, number, size_of_message(number)));
  std::map<int, int> next;
  int received = 0;
  int wrong = 0;
  poll_until(
      transport,
      [&](int peer, std::span<const std::byte> message) {
        const int number = next[peer]++;
        if (!equal(message, pattern(peer, number, size_of_message(number)))) ++wrong;
        ++received;
      },
      [&] { return received == messages * size_; });
  EXPECT_EQ(wrong, 0);
  for (int peer = 0; peer < size_; ++peer) EXPECT_EQ(next[peer], messages) << peer;
}

TEST_F(MpiTransportTest, CarriesTenMegabytesAndNothing) {
  constexpr std::size_t large = 10'000'000;
  const int next_rank = (rank_ + 1) % size_;
  const int previous_rank = (rank_ + size_ - 1) % size_;
  MpiTransport transport(comm_);
  transport.send(next_rank, pattern(rank_, 0, large));
  transport.send(next_rank, {});
  int received = 0;
  poll_until(
      transport,
      [&](int peer, std::span<const std::byte> message) {
        EXPECT_EQ(peer, previous_rank);
        EXPECT_TRUE(received == 0 ? equal(message, pattern(peer, 0, large)) : message.empty());
        ++received;
      },
      [&] { return received == 2; });
}

TEST_F(MpiTransportTest, AReceiverMaySend) {
  // A token goes twice around the ring.
  const int last = 2 * size_;
  const int next_rank = (rank_ + 1) % size_;
  MpiTransport transport(comm_);
  int hops = 0;
  if (rank_ == 0) transport.send(next_rank, {std::byte{1}});
  int visits = 0;
  poll_until(
      transport,
      [&](int, std::span<const std::byte> message) {
        hops = std::to_integer<int>(message[0]);
        ++visits;
        if (hops < last) transport.send(next_rank, {static_cast<std::byte>(hops + 1)});
      },
      [&] { return visits == 2; });
  EXPECT_EQ(hops, rank_ == 0 ? last : size_ + rank_);
}

TEST_F(MpiTransportTest, SaysWhetherAnythingMoved) {
  MpiTransport transport(comm_);
  EXPECT_TRUE(transport.flushed());
  EXPECT_FALSE(transport.poll([](int, std::span<const std::byte>) { FAIL(); }));
  MPI_Barrier(comm_);
}

TEST_F(MpiTransportTest, SaysWhatMpiRefused) {
  MpiTransport transport(comm_);
  try {
    transport.send(size_, {});
    FAIL();
  } catch (const BackendError& error) {
    EXPECT_NE(std::string(error.what()).find("MPI_Isend"), std::string::npos) << error.what();
    // MPICH begins with a capital.
    EXPECT_NE(std::string(error.what()).find("nvalid rank"), std::string::npos) << error.what();
  }
}

TEST_F(MpiTransportTest, KeepsABoundedQueueForARankThatDoesNotReceive) {
  // Short messages, which MPI takes to itself at once. The others receive when the first is done.
  constexpr std::size_t max_unsent = 200'000;
  constexpr std::size_t message_bytes = 100;
  constexpr int max_messages = 20'000;
  MpiTransport transport(comm_, max_unsent);
  int sent = 0;
  if (rank_ == 0 && size_ > 1) {
    try {
      for (; sent < max_messages; ++sent) {
        transport.send(1, Message(message_bytes));
        transport.poll([](int, std::span<const std::byte>) {});
      }
      ADD_FAILURE() << "nothing was refused";
    } catch (const BackendError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1 does not read its messages"),
                std::string::npos)
          << error.what();
      ++sent;  // it was handed to MPI
    }
  }
  MPI_Bcast(&sent, 1, MPI_INT, 0, comm_);
  int received = 0;
  poll_until(
      transport, [&](int, std::span<const std::byte>) { ++received; },
      [&] { return received == (rank_ == 1 ? sent : 0); });
  MPI_Barrier(comm_);
}

TEST_F(MpiTransportTest, ShortMessagesLeaveThoughNobodyReceivesThem) {
  constexpr int messages = 10;  // one of them asks for a confirmation
  MpiTransport transport(comm_, /*max_unsent=*/2000);
  if (rank_ == 0 && size_ > 1) {
    for (int i = 0; i < messages; ++i) transport.send(1, Message(100));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!transport.flushed() && std::chrono::steady_clock::now() < until)
      transport.poll([](int, std::span<const std::byte>) { FAIL(); });
    EXPECT_TRUE(transport.flushed());
  }
  MPI_Barrier(comm_);  // no rank receives before
  int received = 0;
  poll_until(
      transport, [&](int, std::span<const std::byte>) { ++received; },
      [&] { return received == (rank_ == 1 ? messages : 0); });
}

TEST_F(MpiTransportTest, ARankThatReceivesMayBeSentMoreThanTheBound) {
  constexpr std::size_t max_unsent = 200'000;
  constexpr int messages = 300;
  MpiTransport transport(comm_, max_unsent);
  const int next_rank = (rank_ + 1) % size_;
  int received = 0;
  const Transport::Receiver receive = [&](int, std::span<const std::byte>) { ++received; };
  // Rank by rank at about the same pace: none is further ahead than the other has received.
  for (int sent = 0; sent < messages; ++sent) {
    transport.send(next_rank, Message(5000));
    poll_until(transport, receive, [&] { return received > sent; });
  }
  EXPECT_EQ(received, messages);
}

}  // namespace
}  // namespace kolo::internal::transport
