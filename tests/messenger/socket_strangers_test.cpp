// SPDX-License-Identifier: Apache-2.0
// Strangers who connect to the ports of ranks, or use up their descriptors.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "data_world.hpp"
#include "node/file_descriptor.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t many_bytes = std::size_t{8} << 20;

node::FileDescriptor connect_to(const transport::SocketAddress& at) {
  node::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const transport::SystemAddress address = at.to_system();
  const int result = ::connect(socket.get(), address.get(), address.length);
  EXPECT_TRUE(result == 0 || errno == EINPROGRESS || errno == ECONNREFUSED);
  return socket;
}

/// True if the kernel has completed the connection. Over loopback, `connect` does so at once.
bool is_connected(const node::FileDescriptor& socket) {
  pollfd waiting{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  return ::poll(&waiting, 1, 0) == 1 && waiting.revents == POLLOUT;
}

TEST(SocketConnection, StrangersAtThePortAreNoTrouble) {
  DataWorld world(3);
  std::vector<node::FileDescriptor> strangers;
  for (int number = 0; number < 8; ++number) {
    strangers.push_back(
        connect_to(world.addresses()[static_cast<std::size_t>(number) % 3].front()));
    ASSERT_TRUE(is_connected(strangers.back()));
    // Some say nothing, some too little, some much.
    const std::vector<std::byte> garbage =
        pattern(number, 0, std::array{0UL, 3UL, 40UL, 400UL}[static_cast<std::size_t>(number) / 2]);
    ::send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  for (const std::string& problem : world.connect()) EXPECT_EQ(problem, "");
  expect_data_from(2, world, many_bytes);
  EXPECT_EQ(world.rank(0).loss(), nullptr);
}

TEST(SocketConnection, SilentStrangersUseUpNoDescriptors) {
  const auto zero = listen({.rank = 0, .size = 2, .secret = secret_of(0), .connect_timeout = 1min});
  const auto one = listen({.rank = 1, .size = 2, .secret = secret_of(0), .connect_timeout = 1min});
  const std::vector<std::vector<transport::SocketAddress>> addresses{zero->addresses(), {}};
  const transport::SocketAddress door = addresses[0].front();
  constexpr int many = 600;
  constexpr int at_once = 10;
  std::vector<node::FileDescriptor> strangers;
  const auto descriptors_of_ranks = [&] {
    return open_descriptors() - static_cast<int>(strangers.size());
  };
  const int before = descriptors_of_ranks();
  int most = 0;
  std::unique_ptr<Messenger> there;
  std::thread late;
  const std::unique_ptr<Messenger> here = zero->connect(addresses, [&] {
    most = std::max(most, descriptors_of_ranks() - before);
    if (strangers.size() < many) {
      for (int i = 0; i < at_once; ++i) strangers.push_back(connect_to(door));
    } else if (!late.joinable()) {
      late = std::thread([&] { there = one->connect(addresses, [] {}); });
    }
  });
  late.join();
  EXPECT_LT(most, many / 2);
  // Once all ranks are connected, nobody else can connect, and the strangers are gone.
  EXPECT_FALSE(is_connected(connect_to(door)));
  const auto until = std::chrono::steady_clock::now() + 30s;
  while (descriptors_of_ranks() - before > 4 && std::chrono::steady_clock::now() < until) {
    here->progress();
    static_cast<void>(here->may_sleep());
  }
  EXPECT_LE(descriptors_of_ranks() - before, 4);
}

// So many wait before the start that no descriptor is left when they are accepted.
TEST(SocketConnection, MoreStrangersThanDescriptorsHoldUpNobody) {
  DataWorld world(2);
  const transport::SystemAddress door = world.addresses()[0].front().to_system();
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t strangers = ::fork();
  if (strangers == 0) {  // its sockets do not count here
    for (int i = 0; i < 300; ++i)
      static_cast<void>(::connect(::socket(AF_INET, SOCK_STREAM, 0), door.get(), door.length));
    static_cast<void>(::write(ready[1], "r", 1));
    for (;;) ::pause();
  }
  std::byte answer{};
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = static_cast<rlim_t>(ready[1] + 60), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const std::vector<std::string> problems = world.connect();
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(problems, testing::Each(""));
  ::kill(strangers, SIGKILL);
  ::waitpid(strangers, nullptr, 0);
  for (const int end : ready) ::close(end);
}

TEST(SocketConnection, AStrangerWhoConnectedBeforeTheStartIsNoTroubleAfterIt) {
  DataWorld world(2);
  const node::FileDescriptor stranger = connect_to(world.addresses()[0].front());
  ASSERT_TRUE(is_connected(stranger));
  for (const std::string& problem : world.connect()) EXPECT_EQ(problem, "");
  pollfd waiting{.fd = stranger.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&waiting, 1, 30'000), 1);
  std::byte end{};
  EXPECT_LE(::recv(stranger.get(), &end, 1, 0), 0) << "it is still connected";
  expect_data_from(1, world, 100);
  EXPECT_EQ(world.rank(0).loss(), nullptr);
}

}  // namespace
}  // namespace kolo::internal::messenger
