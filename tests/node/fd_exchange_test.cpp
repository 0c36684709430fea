// SPDX-License-Identifier: Apache-2.0
// Between threads of one process; neighborhood_test.cpp has processes.
#include "node/fd_exchange.hpp"

#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "kolo/error.hpp"

namespace kolo::internal::node {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// A counter: reading it gives `value` once.
FileDescriptor counter_of(unsigned value) { return FileDescriptor(::eventfd(value, EFD_NONBLOCK)); }

std::uint64_t read_counter(const FileDescriptor& fd) {
  std::uint64_t value = 0;
  return ::read(fd.get(), &value, sizeof value) == sizeof value ? value : 0;
}

/// What each of the threads that take part gets; they are the first of the group.
struct Ends {
  std::vector<std::vector<ReceivedFds>> received;
  std::vector<std::string> errors;
};
Ends exchange_among(const std::vector<FdInbox>& inboxes, std::size_t taking_part,
                    std::chrono::nanoseconds timeout) {
  FdExchangeGroup group;
  for (const FdInbox& inbox : inboxes) group.inboxes.push_back(inbox.number());
  Ends ends{std::vector<std::vector<ReceivedFds>>(taking_part),
            std::vector<std::string>(taking_part)};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < taking_part; ++i)
    threads.emplace_back([&, i] {
      const auto number = static_cast<unsigned>(10 * i);
      const FileDescriptor first = counter_of(number + 1);
      const FileDescriptor second = counter_of(number + 2);
      try {
        ends.received[i] = exchange_fds(
            inboxes[i], {group.inboxes, static_cast<int>(i)}, std::array{first.get(), second.get()},
            [] {}, timeout);
      } catch (const BackendError& error) {
        ends.errors[i] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return ends;
}

TEST(FdExchange, GivesEachTheOthersDescriptors) {
  for (const std::size_t size : {1U, 2U, 3U, 8U, 40U}) {
    const Ends ends = exchange_among(std::vector<FdInbox>(size), size, 30s);
    for (std::size_t to = 0; to < size; ++to) {
      ASSERT_EQ(ends.errors[to], "");
      ASSERT_EQ(ends.received[to].size(), size);
      EXPECT_TRUE(ends.received[to][to].fds.empty());
    }
    // A counter gives its value to the first who reads it.
    for (std::size_t to = 0; to < size; ++to) {
      const std::size_t from = (to + 1) % size;
      if (from == to) continue;
      const ReceivedFds& received = ends.received[to][from];
      EXPECT_EQ(received.pid, ::getpid());
      ASSERT_EQ(received.fds.size(), 2U);
      EXPECT_EQ(read_counter(received.fds[0]), 10 * from + 1);
      EXPECT_EQ(read_counter(received.fds[1]), 10 * from + 2);
    }
  }
}

TEST(FdExchange, InboxesHaveDifferentNumbers) {
  const FdInbox first;
  const FdInbox second;
  EXPECT_NE(first.number(), second.number());
  EXPECT_NE(first.number(), 0U);
}

TEST(FdExchange, OneThatHasGoneIsAnErrorSoon) {
  const FdInbox own;
  const std::uint64_t gone = FdInbox().number();
  EXPECT_THAT(
      [&] {
        (void)exchange_fds(
            own, {{own.number(), gone}, 0}, {}, [] {}, 1h);
      },
      testing::ThrowsMessage<BackendError>(HasSubstr("another rank of this host")));
}

TEST(FdExchange, OneThatIsSilentIsGivenUp) {
  // The third is there and sends nothing.
  const Ends ends = exchange_among(std::vector<FdInbox>(3), 2, 50ms);
  EXPECT_THAT(ends.errors, testing::Each(HasSubstr("1 of the 3 ranks of this host sent nothing")));
}

TEST(FdExchange, CallsBackWhileItWaits) {
  const FdInbox own;
  const FdInbox silent;
  int calls = 0;
  EXPECT_THROW((void)exchange_fds(
                   own, {{own.number(), silent.number()}, 0}, {}, [&] { ++calls; }, 100ms),
               BackendError);
  EXPECT_GT(calls, 2);
}

TEST(FdExchange, OtherFewerDescriptorsAreAnError) {
  const FdInbox own;
  const FdInbox other;
  const FdExchangeGroup group{{own.number(), other.number()}, 0};
  const FileDescriptor fd = counter_of(1);
  // The other sends one and is content with one; this one expects none.
  std::thread thread([&] {
    EXPECT_THROW((void)exchange_fds(
                     other, {group.inboxes, 1}, std::array{fd.get()}, [] {}, 10s),
                 BackendError);
  });
  EXPECT_THAT(
      [&] {
        (void)exchange_fds(
            own, group, {}, [] {}, 10s);
      },
      testing::ThrowsMessage<BackendError>(HasSubstr("received 1 of 0")));
  thread.join();
}

}  // namespace
}  // namespace kolo::internal::node
