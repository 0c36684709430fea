// The ranks of one host as processes.
#include "node/neighbourhood.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <mpi.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <random>
#include <vector>

#include "kolo/error.hpp"

namespace kolo::node {
namespace {

using namespace std::chrono_literals;

class NeighbourhoodTest : public testing::Test {
 protected:
  NeighbourhoodTest() {
    MPI_Comm_rank(MPI_COMM_WORLD, &party_.index);
    MPI_Comm_size(MPI_COMM_WORLD, &party_.size);
    std::uint64_t number = (std::uint64_t{std::random_device{}()} << 32) | std::random_device{}();
    MPI_Bcast(&number, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    party_.name = fmt::format("test-{:016x}", number);
  }

  static void barrier() { MPI_Barrier(MPI_COMM_WORLD); }

  Party party_;
};

TEST_F(NeighbourhoodTest, DescriptorsReachTheOtherProcesses) {
  const FileDescriptor own(::eventfd(0, EFD_NONBLOCK));
  const std::vector<Parcel> parcels =
      exchange_descriptors(party_, std::array{own.get()}, barrier, 30s);
  ASSERT_EQ(parcels.size(), static_cast<std::size_t>(party_.size));
  std::vector<int> pids(parcels.size());
  const int own_pid = ::getpid();
  MPI_Allgather(&own_pid, 1, MPI_INT, pids.data(), 1, MPI_INT, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < parcels.size(); ++i) {
    if (static_cast<int>(i) == party_.index) continue;
    EXPECT_EQ(parcels[i].pid, pids[i]);
    ASSERT_EQ(parcels[i].descriptors.size(), 1U);
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(parcels[i].descriptors[0].get(), &one, sizeof one), ssize_t{sizeof one});
  }
  barrier();
  std::uint64_t sum = 0;
  if (party_.size > 1) {
    ASSERT_EQ(::read(own.get(), &sum, sizeof sum), ssize_t{sizeof sum});
  }
  EXPECT_EQ(sum, static_cast<std::uint64_t>(party_.size - 1));
}

TEST_F(NeighbourhoodTest, OneThatDoesWithoutIsAnErrorOnAllOthersSoon) {
  // The last rank meets the others at the barrier, but has no socket.
  if (party_.size == 1) return;
  const auto since = std::chrono::steady_clock::now();
  if (party_.index == party_.size - 1) {
    barrier();
  } else {
    EXPECT_THAT([&] { (void)Neighbourhood(party_, 4096, 8192, barrier); },
                testing::ThrowsMessage<BackendError>(testing::HasSubstr("of this host")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - since, Neighbourhood::patience / 2);
  barrier();
}

TEST_F(NeighbourhoodTest, EachSeesTheOthersMemory) {
  const Neighbourhood host(party_, std::size_t{4} * 1000, 8192, barrier);
  EXPECT_EQ(host.index(), party_.index);
  ASSERT_EQ(host.size(), party_.size);
  const auto words = [&](int index) {
    return reinterpret_cast<std::atomic<int>*>(host.memory(index));
  };
  for (int index = 0; index < host.size(); ++index) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(words(index)) % 4096, 0U);
    EXPECT_EQ(words(index)[party_.index], 0);
    EXPECT_EQ(words(index)[999], 0);
  }
  barrier();
  for (int index = 0; index < host.size(); ++index)
    words(index)[party_.index] = 100 * index + party_.index;
  barrier();
  for (int index = 0; index < host.size(); ++index)
    for (int writer = 0; writer < host.size(); ++writer)
      EXPECT_EQ(words(index)[writer], 100 * index + writer);
}

TEST_F(NeighbourhoodTest, BellsRingAcrossProcesses) {
  // A word goes round: each rank sleeps until its own has come as far as its neighbour's.
  constexpr int rounds = 200;
  const Neighbourhood host(party_, 4096, 8192, barrier);
  const auto word = [&](int index) -> std::atomic<int>& {
    return *reinterpret_cast<std::atomic<int>*>(host.memory(index));
  };
  const int next = (party_.index + 1) % party_.size;
  for (int round = 1; round <= rounds; ++round) {
    if (party_.index == 0) {
      word(next) = round;
      host.bell(next).ring();
    }
    while (word(party_.index) != round) {
      host.own_bell().listen(Listener::waiter, Concern::messages);
      if (word(party_.index) != round) {
        const auto since = std::chrono::steady_clock::now();
        host.own_bell().sleep(Listener::waiter, 30s);
        ASSERT_LT(std::chrono::steady_clock::now() - since, 30s) << "a lost wake";
      }
      host.own_bell().stop_listening();
    }
    if (party_.index != 0) {
      word(next) = round;
      host.bell(next).ring();
    }
  }
  barrier();
}

TEST_F(NeighbourhoodTest, NobodyHasEndedWhileAllLive) {
  const Neighbourhood host(party_, 4096, 8192, barrier);
  EXPECT_THAT(host.ended(), testing::IsEmpty());
  barrier();
}

}  // namespace
}  // namespace kolo::node
