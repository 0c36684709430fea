// SPDX-License-Identifier: Apache-2.0
// The ranks of one host as processes.
#include "node/local_group.hpp"

#include <gmock/gmock.h>
#include <mpi.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../support/share_memory.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::node {
namespace {

using namespace std::chrono_literals;

class NeighborhoodTest : public testing::Test {
 protected:
  NeighborhoodTest() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  static void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  static LocalGroup share(std::size_t bytes) { return share_memory(MPI_COMM_WORLD, bytes, 8192); }

  int rank_ = 0;
  int size_ = 1;
};

TEST_F(NeighborhoodTest, DescriptorsReachTheOtherProcesses) {
  const FileDescriptor own(::eventfd(0, EFD_NONBLOCK));
  const FdInbox inbox;
  const FdExchangeGroup group = exchange_inboxes(MPI_COMM_WORLD, inbox.number());
  std::vector<ReceivedFds> received(static_cast<std::size_t>(size_));
  exchange_fds(
      inbox, group, std::array{own.get()},
      [&](int index, ReceivedFds fds) {
        received[static_cast<std::size_t>(index)] = std::move(fds);
      },
      [] {}, 30s);
  std::vector<int> pids(received.size());
  const int own_pid = ::getpid();
  MPI_Allgather(&own_pid, 1, MPI_INT, pids.data(), 1, MPI_INT, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < received.size(); ++i) {
    if (static_cast<int>(i) == rank_) continue;
    EXPECT_EQ(received[i].pid, pids[i]);
    ASSERT_EQ(received[i].fds.size(), 1U);
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(received[i].fds[0].get(), &one, sizeof one), ssize_t{sizeof one});
  }
  barrier();
  std::uint64_t sum = 0;
  if (size_ > 1) {
    ASSERT_EQ(::read(own.get(), &sum, sizeof sum), ssize_t{sizeof sum});
  }
  EXPECT_EQ(sum, static_cast<std::uint64_t>(size_ - 1));
}

TEST_F(NeighborhoodTest, OneThatDoesWithoutIsAnErrorOnAllOthersSoon) {
  // The last rank closes its inbox again, as one that fails does.
  if (size_ == 1) return;
  const auto since = std::chrono::steady_clock::now();
  std::optional<OwnMemory> own(std::in_place, 4096, 8192);
  const FdExchangeGroup group = exchange_inboxes(MPI_COMM_WORLD, own->inbox());
  if (rank_ == size_ - 1) own.reset();
  barrier();
  if (own) {
    EXPECT_THAT([&] { (void)LocalGroup(std::move(*own), group, [] {}); },
                testing::ThrowsMessage<BackendError>(testing::HasSubstr("of this host")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - since, LocalGroup::timeout / 2);
  barrier();
}

TEST_F(NeighborhoodTest, EachSeesTheOthersMemory) {
  const LocalGroup host = share(std::size_t{4} * 1000);
  EXPECT_EQ(host.index(), rank_);
  ASSERT_EQ(host.size(), size_);
  const auto words = [&](int index) {
    return reinterpret_cast<std::atomic<int>*>(host.memory(index));
  };
  for (int index = 0; index < host.size(); ++index) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(words(index)) % 4096, 0U);
    EXPECT_EQ(words(index)[rank_], 0);
    EXPECT_EQ(words(index)[999], 0);
  }
  barrier();
  for (int index = 0; index < host.size(); ++index) words(index)[rank_] = 100 * index + rank_;
  barrier();
  for (int index = 0; index < host.size(); ++index)
    for (int writer = 0; writer < host.size(); ++writer)
      EXPECT_EQ(words(index)[writer], 100 * index + writer);
}

TEST_F(NeighborhoodTest, BellsRingAcrossProcesses) {
  // A word goes round: each rank sleeps until its own has come as far as its local_peer's.
  constexpr int rounds = 200;
  const LocalGroup host = share(4096);
  const auto word = [&](int index) -> std::atomic<int>& {
    return *reinterpret_cast<std::atomic<int>*>(host.memory(index));
  };
  const int next = (rank_ + 1) % size_;
  for (int round = 1; round <= rounds; ++round) {
    if (rank_ == 0) {
      word(next) = round;
      host.bell(next).ring();
    }
    while (word(rank_) != round) {
      host.own_bell().listen(Listener::waiter, WakeReason::messages);
      if (word(rank_) != round) {
        const auto since = std::chrono::steady_clock::now();
        host.own_bell().sleep(Listener::waiter, 30s);
        ASSERT_LT(std::chrono::steady_clock::now() - since, 30s) << "a lost wake";
      }
      host.own_bell().stop_listening();
    }
    if (rank_ != 0) {
      word(next) = round;
      host.bell(next).ring();
    }
  }
  barrier();
}

TEST_F(NeighborhoodTest, NobodyHasEndedWhileAllLive) {
  const LocalGroup host = share(4096);
  EXPECT_THAT(host.ended(), testing::IsEmpty());
  barrier();
}

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST_F(NeighborhoodTest, KeepsThreeDescriptorsOfEachOther) {
  const std::ptrdiff_t before = open_descriptors();
  const LocalGroup host = share(4096);
  const std::ptrdiff_t own = 4;  // two memories, and two of the bell
  EXPECT_LE(open_descriptors() - before, own + 3 * (size_ - 1));
  barrier();
}

/// Every number below `limit` is taken, so that this process can open as many descriptors as the
/// limit is moved up.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    for (;;) {
      FileDescriptor next(::eventfd(0, EFD_CLOEXEC));
      const int number = next.get();
      taken_.push_back(std::move(next));
      if (number >= open_descriptors() - 2) break;  // the directory is one more
    }
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(taken_.back().get() + 1 + more);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<FileDescriptor> taken_{};
};

TEST_F(NeighborhoodTest, WithoutDescriptorsForTheOthersProcessesSaysSo) {
  if (size_ != 2) GTEST_SKIP() << "counts what comes from one other rank";
  OwnMemory own(4096, 8192);
  const FdExchangeGroup group = exchange_inboxes(MPI_COMM_WORLD, own.inbox());
  std::string problem;
  {
    std::optional<FewDescriptors> few;
    if (rank_ == 1) few.emplace(4);  // those that the other sends
    try {
      const LocalGroup host(std::move(own), group, [] {});
    } catch (const BackendError& error) {
      problem = error.what();
    }
  }
  EXPECT_EQ(problem.empty(), rank_ == 0);
  if (rank_ == 1) {
    EXPECT_THAT(problem, testing::HasSubstr("ulimit -n"));
    EXPECT_THAT(problem, testing::Not(testing::HasSubstr("namespace")));
  }
  barrier();
}

TEST_F(NeighborhoodTest, HeapsMayDifferInSize) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  OwnMemory own(page, page * static_cast<std::size_t>(rank_ + 1));
  const FdExchangeGroup group = exchange_inboxes(MPI_COMM_WORLD, own.inbox());
  const LocalGroup host(std::move(own), group, [] {});
  for (int index = 0; index < host.size(); ++index)
    EXPECT_EQ(host.heap(index).size(), page * static_cast<std::size_t>(index + 1));
  barrier();
}

TEST_F(NeighborhoodTest, AllRanksHaveTheSamePartOfTheCaches) {
  const LocalGroup host = share(4096);
  std::int64_t smallest = 0;
  std::int64_t largest = 0;
  const std::int64_t own = host.cache_share();
  MPI_Allreduce(&own, &smallest, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&own, &largest, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  EXPECT_GT(smallest, 0);
  EXPECT_EQ(smallest, largest);
}

}  // namespace
}  // namespace kolo::internal::node
