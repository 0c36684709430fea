// SPDX-License-Identifier: Apache-2.0
// The exchange of descriptors between threads of one process; neighborhood_test.cpp uses processes.
#include "node/fd_exchange.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
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

void ignore(int /*index*/, const ReceivedFds& /*received*/) {}

/// The descriptors and errors of each participating thread; these threads are the first of the
/// group.
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
        ends.received[i].resize(inboxes.size());
        exchange_fds(
            inboxes[i], {group.inboxes, static_cast<int>(i)}, std::array{first.get(), second.get()},
            [&](int index, ReceivedFds received) {
              ends.received[i][static_cast<std::size_t>(index)] = std::move(received);
            },
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

/// Mounts a file system on /tmp, for a child of this process only, and expects the child's inbox in
/// /dev/shm.
void expect_inbox_in_shm(unsigned long flags, const char* options) {
  constexpr int not_permitted = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/tmp", "tmpfs", flags, options) != 0)
      ::_exit(not_permitted);
    try {
      const FdInbox inbox;
      const std::string path = fmt::format("/dev/shm/kolo-{:016x}/inbox", inbox.number());
      const bool is_clean = std::filesystem::is_empty("/tmp");
      const bool is_there = ::access(path.c_str(), F_OK) == 0;
      std::filesystem::remove_all(std::filesystem::path(path).parent_path());
      ::_exit(is_there && is_clean ? 0 : 1);
    } catch (...) {
      ::_exit(2);
    }
  }
  int end = -1;
  ::waitpid(child, &end, 0);
  if (WIFEXITED(end) && WEXITSTATUS(end) == not_permitted) GTEST_SKIP() << "cannot mount";
  EXPECT_EQ(end, 0);
}

TEST(FdExchange, AnInboxNeedsNoWritableTmp) { expect_inbox_in_shm(MS_RDONLY, nullptr); }

// There is room for the directory, but not for the socket.
TEST(FdExchange, AnInboxNeedsNoRoomInTmp) { expect_inbox_in_shm(0, "nr_inodes=2"); }

TEST(FdExchange, StrangersCannotReachAnInbox) {
  std::string directory;
  {
    const FdInbox inbox;
    directory = fmt::format("/tmp/kolo-{:016x}", inbox.number());
    struct stat status {};
    ASSERT_EQ(::stat(directory.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0700U);
    EXPECT_EQ(status.st_uid, ::geteuid());
    if (::geteuid() == 0) {
      const pid_t stranger = ::fork();
      if (stranger == 0) {
        sockaddr_un to{};
        to.sun_family = AF_UNIX;
        const std::string path = directory + "/inbox";
        path.copy(to.sun_path, path.size());
        const int socket = ::socket(AF_UNIX, SOCK_DGRAM, 0);
        const bool is_refused =
            ::setgid(65534) == 0 && ::setuid(65534) == 0 &&
            ::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 && errno == EACCES;
        ::_exit(is_refused ? 0 : 1);
      }
      int end = -1;
      ::waitpid(stranger, &end, 0);
      EXPECT_EQ(end, 0);
    }
  }
  EXPECT_NE(::access(directory.c_str(), F_OK), 0) << "the directory outlives its inbox";
}

TEST(FdExchange, OneThatHasGoneIsAnErrorSoon) {
  const FdInbox own;
  const std::uint64_t gone = FdInbox().number();
  EXPECT_THAT(
      [&] {
        exchange_fds(
            own, {{own.number(), gone}, 0}, {}, ignore, [] {}, 1h);
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
  EXPECT_THROW(exchange_fds(
                   own, {{own.number(), silent.number()}, 0}, {}, ignore, [&] { ++calls; }, 1s),
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
    EXPECT_THROW(exchange_fds(
                     other, {group.inboxes, 1}, std::array{fd.get()}, ignore, [] {}, 10s),
                 BackendError);
  });
  EXPECT_THAT(
      [&] {
        exchange_fds(
            own, group, {}, ignore, [] {}, 10s);
      },
      testing::ThrowsMessage<BackendError>(HasSubstr("received 1 of 0")));
  thread.join();
}

TEST(FdExchange, WhatAReceiverThrowsComesAfterTheOthersWereServed) {
  const FdInbox own;
  const FdInbox other;
  const FdExchangeGroup group{{own.number(), other.number()}, 0};
  const FileDescriptor fd = counter_of(1);
  std::thread thread([&] {
    EXPECT_NO_THROW(exchange_fds(
        other, {group.inboxes, 1}, std::array{fd.get()}, ignore, [] {}, 10s));
  });
  const auto refuse = [](int, const ReceivedFds&) { throw BackendError("no room"); };
  EXPECT_THAT(
      [&] {
        exchange_fds(
            own, group, std::array{fd.get()}, refuse, [] {}, 10s);
      },
      testing::ThrowsMessage<BackendError>("no room"));
  thread.join();
}

/// Sends a descriptor several times, again and again until the kernel refuses; its last error.
int fill(int from, int descriptor) {
  const std::array<int, 8> descriptors{descriptor, descriptor, descriptor, descriptor,
                                       descriptor, descriptor, descriptor, descriptor};
  std::array<char, CMSG_SPACE(sizeof descriptors)> control{};
  char byte = 0;
  iovec content{.iov_base = &byte, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
  while (::sendmsg(from, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
  }
  return errno;
}

/// As an ordinary user who may have few descriptors, and has as many on their way already. When the
/// exchange waits, they are received. Returns an exit status.
int exchange_when_too_many_are_on_their_way() {
  constexpr uid_t ordinary = 65'432;  // root has no such limit
  constexpr rlimit few{.rlim_cur = 16, .rlim_max = 16};
  if (::geteuid() == 0 && ::setuid(ordinary) != 0) return 2;
  if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 3;
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets.data()) != 0) return 4;
  const FileDescriptor sender(sockets[0]);
  std::optional<FileDescriptor> receiver(std::in_place, sockets[1]);
  // A queue holds few messages, so they are sent until either it or the user is full.
  if (fill(sender.get(), sender.get()) != ETOOMANYREFS) return 5;
  const FdInbox own;
  const FdInbox other;
  const FdExchangeGroup group{{own.number(), other.number()}, 0};
  std::thread thread([&] {
    exchange_fds(
        other, {group.inboxes, 1}, std::array{other.fd()}, ignore, [] {}, 30s);
  });
  exchange_fds(
      own, group, std::array{own.fd()}, ignore, [&] { receiver.reset(); }, 30s);
  thread.join();
  return 0;
}

TEST(FdExchange, WaitsWhileTheUserHasTooManyOnTheirWay) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int status = 1;
    try {
      status = exchange_when_too_many_are_on_their_way();
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
    }
    ::_exit(status);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 5)
    GTEST_SKIP() << "this kernel's queues are shorter than 3 messages";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace kolo::internal::node
