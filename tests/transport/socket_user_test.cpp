// SPDX-License-Identifier: Apache-2.0
#include "transport/socket_user.hpp"

#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "transport/sockets.hpp"

namespace kolo::internal::transport {
namespace {

using namespace std::chrono_literals;

/// A connection within this process.
struct Connection {
  node::FileDescriptor listener = std::move(listen_at({"127.0.0.1", 0}).front());
  node::FileDescriptor caller = connect_to({"127.0.0.1", address_of(listener.get()).port}, 20s);
  node::FileDescriptor accepted = accept_connection(listener.get());
};

/// False where the kernel, or a filter of system calls, answers nobody.
bool are_known() {
  const Connection connection;
  return SocketUsers().at_other_end_of(connection.accepted.get()) != OtherEnd::unknown;
}

TEST(SocketUsers, KnowTheUserAtTheOtherEnd) {
  if (!are_known()) GTEST_SKIP() << "the kernel does not say";
  const Connection connection;
  ASSERT_TRUE(connection.accepted.valid());
  SocketUsers users;
  for (const int socket : {connection.caller.get(), connection.accepted.get()}) {
    EXPECT_EQ(users.at_other_end_of(socket), OtherEnd::same_user);
    EXPECT_FALSE(is_foreign(users.at_other_end_of(socket), /*has_secret=*/false));
  }
}

// A socket that is bound to a device is not found without the device. Any user may bind his own.
TEST(SocketUsers, KnowTheUserOfASocketThatIsBoundToADevice) {
  if (!are_known()) GTEST_SKIP() << "the kernel does not say";
  const Connection connection;
  for (const int bound : {connection.caller.get(), connection.accepted.get()}) {
    if (::setsockopt(bound, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) != 0)
      GTEST_SKIP() << "this kernel lets only root bind a socket to a device";
  }
  SocketUsers users;
  for (const int socket : {connection.caller.get(), connection.accepted.get()})
    EXPECT_EQ(users.at_other_end_of(socket), OtherEnd::same_user);
}

TEST(SocketUsers, RefuseWhoHidesUnlessASecretDecides) {
  if (!are_known()) GTEST_SKIP() << "the kernel does not say";
  Connection connection;
  ASSERT_TRUE(connection.accepted.valid());
  connection.caller = node::FileDescriptor();  // nobody holds the other end any more
  SocketUsers users;
  EXPECT_EQ(users.at_other_end_of(connection.accepted.get()), OtherEnd::hidden);
  EXPECT_TRUE(is_foreign(OtherEnd::hidden, /*has_secret=*/false));
  EXPECT_FALSE(is_foreign(OtherEnd::hidden, /*has_secret=*/true));
}

TEST(SocketUsers, KnowNothingOfWhatIsNoConnection) {
  SocketUsers users;
  EXPECT_EQ(users.at_other_end_of(-1), OtherEnd::hidden);
  const Connection connection;
  EXPECT_EQ(users.at_other_end_of(connection.listener.get()), OtherEnd::hidden);
}

TEST(SocketUsers, NeedNoFurtherDescriptor) {
  if (!are_known()) GTEST_SKIP() << "the kernel does not say";
  const Connection connection;
  SocketUsers users;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    const bool is_full = ::setrlimit(RLIMIT_NOFILE, &none) == 0 && ::dup(0) < 0;
    ::_exit(is_full && users.at_other_end_of(connection.accepted.get()) == OtherEnd::same_user ? 0
                                                                                               : 1);
  }
  int end = -1;
  ::waitpid(child, &end, 0);
  EXPECT_EQ(end, 0);
}

}  // namespace
}  // namespace kolo::internal::transport
