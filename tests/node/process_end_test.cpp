// SPDX-License-Identifier: Apache-2.0
// A local_peer whose process is killed.
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kolo/error.hpp"
#include "node/local_group.hpp"
#include "node/other_process.hpp"

namespace kolo::internal::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

void send_number(int socket, std::uint64_t number) {
  if (::write(socket, &number, sizeof number) != sizeof number) std::abort();
}
std::uint64_t receive_number(int socket) {
  std::uint64_t number = 0;
  if (::read(socket, &number, sizeof number) != sizeof number) std::abort();
  return number;
}

/// Shows a word in its memory, and waits to be killed.
[[noreturn]] void be_a_neighbor(int socket) {
  try {
    OwnMemory own(4096, 8192);
    const std::uint64_t inbox = own.inbox();
    send_number(socket, inbox);
    const LocalGroup host(std::move(own), {{receive_number(socket), inbox}, 1}, [] {});
    std::memcpy(host.memory(1), "hello", 6);
    send_number(socket, 0);
    for (;;) ::pause();
  } catch (...) {
    ::_exit(1);
  }
}

/// A local_peer is seen to live, then is killed.
void lose_a_neighbor() {
  std::array<int, 2> sockets{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
  const FileDescriptor ours(sockets[0]);
  const FileDescriptor its(sockets[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) be_a_neighbor(its.get());

  OwnMemory own(4096, 8192);
  const std::uint64_t inbox = own.inbox();
  send_number(ours.get(), inbox);
  const LocalGroup host(std::move(own), {{inbox, receive_number(ours.get())}, 0}, [] {});
  receive_number(ours.get());  // the word is there
  EXPECT_STREQ(reinterpret_cast<const char*>(host.memory(1)), "hello");
  EXPECT_THAT(host.ended(), IsEmpty());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t ended{};  // not yet waited for, as under a launcher that has not looked
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(host.ended(), ElementsAre(1));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_THAT(host.ended(), ElementsAre(1));
  EXPECT_STREQ(reinterpret_cast<const char*>(host.memory(1)), "hello");
}

TEST(NeighborhoodOfProcesses, KnowsWhoseProcessHasEnded) { lose_a_neighbor(); }

/// As kernels before 5.3 and strict seccomp filters do. False if that is forbidden here.
bool refuse_pidfds() {
  std::array<sock_filter, 4> program{
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(NeighborhoodOfProcesses, KnowsItWithoutPidfds) {
  constexpr int forbidden = 77;
  const pid_t child = ::fork();  // the filter stays with its process
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!refuse_pidfds()) ::_exit(forbidden);
    lose_a_neighbor();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == forbidden)
    GTEST_SKIP() << "this process may not filter its system calls";
  EXPECT_EQ(status, 0);
}

/// A local_peer that does not see its own. Says what it has become by its exit status.
[[noreturn]] void be_a_neighbor_in_another_namespace(int socket) {
  constexpr int both = CLONE_NEWUSER | CLONE_NEWPID;
  if (::unshare(CLONE_NEWPID) != 0 && ::unshare(both) != 0) {
    send_number(socket, 0);
    ::_exit(0);
  }
  const pid_t inside = ::fork();  // the namespace is that of children
  if (inside == 0) {
    OwnMemory own(4096, 8192);
    const std::uint64_t inbox = own.inbox();
    send_number(socket, inbox);
    const FdExchangeGroup group{{receive_number(socket), inbox}, 1};
    EXPECT_THAT([&] { (void)LocalGroup(std::move(own), group, [] {}); },
                ThrowsMessage<BackendError>(HasSubstr("PID namespace")));
    (void)receive_number(socket);  // the other sees this process, as long as it runs
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 1;
  ::waitpid(inside, &status, 0);
  ::_exit(status == 0 ? 0 : 1);
}

TEST(NeighborhoodOfProcesses, RefusesOneThatItCannotSee) {
  std::array<int, 2> sockets{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
  const FileDescriptor ours(sockets[0]);
  const FileDescriptor its(sockets[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) be_a_neighbor_in_another_namespace(its.get());
  const std::uint64_t inbox_there = receive_number(ours.get());
  if (inbox_there != 0) {
    OwnMemory own(4096, 8192);
    const FdExchangeGroup group{{own.inbox(), inbox_there}, 0};
    send_number(ours.get(), own.inbox());
    const LocalGroup host(std::move(own), group, [] {});
    send_number(ours.get(), 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  if (inbox_there == 0) GTEST_SKIP() << "this process may not make namespaces";
}

TEST(ProcessEnded, DoesNotTakeAnotherProcessWithTheSameNumberForIt) {
  const std::uint64_t started = start_of_process(::getpid());
  EXPECT_NE(started, 0U);
  EXPECT_FALSE(process_ended(::getpid(), started));
  EXPECT_TRUE(process_ended(::getpid(), started - 1));
  EXPECT_FALSE(process_ended(::getpid(), 0)) << "it could not be seen at first";
}

}  // namespace
}  // namespace kolo::internal::node
