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

/// False where the kernel, or a filter of system calls, answers nobody.
bool are_known() {
  const node::FileDescriptor kernel(::socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG));
  return kernel.valid();
}

/// A connection within this process.
struct Connection {
  node::FileDescriptor listener = std::move(listen_at({"127.0.0.1", 0}).front());
  node::FileDescriptor caller = connect_to({"127.0.0.1", address_of(listener.get()).port}, 20s);
  node::FileDescriptor accepted = accept_connection(listener.get());
};

TEST(SocketUsers, KnowTheUserAtTheOtherEnd) {
  if (!are_known()) GTEST_SKIP() << "the kernel does not say";
  const Connection connection;
  ASSERT_TRUE(connection.accepted.valid());
  SocketUsers users;
  for (const int socket : {connection.caller.get(), connection.accepted.get()}) {
    EXPECT_EQ(users.at_other_end_of(socket), ::geteuid());
    EXPECT_FALSE(users.is_foreign(socket));
  }
}

TEST(SocketUsers, KnowNothingOfWhatIsNoConnection) {
  SocketUsers users;
  EXPECT_FALSE(users.at_other_end_of(-1));
  const Connection connection;
  EXPECT_FALSE(users.at_other_end_of(connection.listener.get()));
}

TEST(SocketUsers, NeedNoFurtherDescriptor) {
  if (!are_known()) GTEST_SKIP() << "the kernel does not say";
  const Connection connection;
  SocketUsers users;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    const bool is_full = ::setrlimit(RLIMIT_NOFILE, &none) == 0 && ::dup(0) < 0;
    ::_exit(is_full && users.at_other_end_of(connection.accepted.get()) ? 0 : 1);
  }
  int end = -1;
  ::waitpid(child, &end, 0);
  EXPECT_EQ(end, 0);
}

}  // namespace
}  // namespace kolo::internal::transport
