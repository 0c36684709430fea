// SPDX-License-Identifier: Apache-2.0
#include "transport/socket_user.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "transport/sockets.hpp"

namespace kolo::internal::transport {
namespace {

using namespace std::chrono_literals;

/// A connection within this process.
struct Connection {
  node::FileDescriptor listener = listen_at({"127.0.0.1", 0});
  node::FileDescriptor caller = connect_to({"127.0.0.1", address_of(listener.get()).port}, 20s);
  node::FileDescriptor accepted = accept_connection(listener.get());
};

TEST(SocketUsers, KnowTheUserAtTheOtherEnd) {
  const Connection connection;
  SocketUsers users;
  for (const int socket : {connection.caller.get(), connection.accepted.get()}) {
    const auto user = users.at_other_end_of(socket);
    if (!user) GTEST_SKIP() << "the kernel does not say";
    EXPECT_EQ(*user, ::geteuid());
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
  const Connection connection;
  SocketUsers users;
  if (!users.at_other_end_of(connection.accepted.get())) GTEST_SKIP() << "the kernel does not say";
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
