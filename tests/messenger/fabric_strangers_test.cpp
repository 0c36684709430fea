// SPDX-License-Identifier: Apache-2.0
// Strangers who connect to the ports of ranks, answer their calls, or use up their descriptors.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fabric_stranger.hpp"
#include "fabric_world.hpp"
#include "kolo/error.hpp"
#include "messenger/fabric_library.hpp"
#include "network.hpp"
#include "node/file_descriptor.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;
using Bytes = transport::Handshake::Bytes;
using testing::HasSubstr;

constexpr std::size_t many_bytes = std::size_t{8} << 20;

/// Rank `from` sends bytes to rank 0, which arrive.
void expect_data_from(int from, FabricWorld& world, std::size_t bytes) {
  Transfers here(world.rank(0));
  Transfers there(world.rank(from));
  const std::vector<std::byte> sent = pattern(from, 0, bytes);
  std::vector<std::byte> received(bytes);
  here.receive(from, 1, received);
  there.send(0, 1, sent);
  while (here.pending() + there.pending() > 0) {
    here.step();
    there.step();
  }
  EXPECT_TRUE(received == sent);
}

node::FileDescriptor connect_to(const transport::SocketAddress& at) {
  node::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const transport::SystemAddress address = at.to_system();
  const int result = ::connect(socket.get(), address.get(), address.length);
  EXPECT_TRUE(result == 0 || errno == EINPROGRESS);
  return socket;
}

/// True if the kernel has completed the connection. Over loopback, `connect` does so at once.
bool is_connected(const node::FileDescriptor& socket) {
  pollfd waiting{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  return ::poll(&waiting, 1, 0) == 1 && waiting.revents == POLLOUT;
}

TEST(FabricConnection, StrangersAtThePortAreNoTrouble) {
  FabricWorld world(3);
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

TEST(FabricConnection, SilentStrangersUseUpNoDescriptors) {
  const auto zero = listen_on_fabric(
      {.rank = 0, .size = 2, .secret = secret_of(0), .connect_timeout = 1min}, {loopback()});
  const auto one = listen_on_fabric(
      {.rank = 1, .size = 2, .secret = secret_of(0), .connect_timeout = 1min}, {loopback()});
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
      errno = EAGAIN;  // as other calls leave it
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

// Bytes that libfabric cannot bear must not reach it.
TEST(FabricConnection, NobodyHearsAStrangerWithoutThePass) {
  FabricWorld world(2);
  const node::FileDescriptor stranger = connect_to(world.addresses()[0].front());
  // A request with the hello of rank 1, which anybody can write.
  const transport::Parties claimed{
      .kind = transport::Parties::Kind::data, .caller = 1, .callee = 0};
  const Bytes hello =
      transport::Handshake(transport::Handshake::Side::caller, secret_of(9), claimed).begin();
  std::vector<std::byte> request(32);
  request[0] = std::byte{3};
  request[3] = static_cast<std::byte>(hello.size());
  request[4] = std::byte{1};
  request.insert(request.end(), hello.begin(), hello.end());
  ASSERT_EQ(::send(stranger.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  EXPECT_THAT(world.connect(), testing::Each(""));
  std::array<std::byte, 200> answer{};
  EXPECT_LE(::recv(stranger.get(), answer.data(), answer.size(), MSG_DONTWAIT), 0);
}

// So many wait before the start that no descriptor is left when they are accepted.
TEST(FabricConnection, MoreStrangersThanDescriptorsHoldUpNobody) {
  FabricWorld world(2);
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

// libfabric reads the first bytes of a caller with calls that block.
TEST(FabricConnection, AStrangerWhoSendsAPartOfACallHoldsUpNobody) {
  FabricWorld world(2);
  const node::FileDescriptor stranger = connect_to(world.addresses()[0].front());
  ASSERT_TRUE(is_connected(stranger));
  // The header of a request with 24 more bytes, which ends with the pass.
  std::vector<std::byte> request(24);
  request[0] = std::byte{3};
  request[3] = std::byte{24};
  request = with_pass(request);
  ASSERT_EQ(::send(stranger.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  EXPECT_THAT(world.connect(), testing::Each(""));
}

TEST(FabricConnection, AStrangerWhoConnectedBeforeTheStartIsNoTroubleAfterIt) {
  FabricWorld world(2);
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

TEST(FabricConnection, ARankWithoutTheSecretIsNotLetIn) {
  FabricWorld world(3, 2s, {loopback()}, encrypts_under_test(), {0, 0, 5});
  const std::vector<std::string> problems = world.connect();
  EXPECT_THAT(problems[0], HasSubstr("rank 2 (no call)"));
  EXPECT_THAT(problems[1], HasSubstr("rank 2 (no call)"));
  EXPECT_THAT(problems[2], HasSubstr("rank 0 ("));
}

/// The error of rank `rank` of two, which calls these addresses.
std::string error_of(int rank, const std::vector<std::vector<transport::SocketAddress>>& addresses,
                     FabricListener& listener, const std::function<void()>& while_waiting) {
  try {
    static_cast<void>(listener.connect(addresses, while_waiting));
    return "";
  } catch (const BackendError& error) {
    EXPECT_THAT(error.ranks(), testing::ElementsAre(1 - rank));
    return error.what();
  }
}

TEST(FabricConnection, WhoAnswersWithoutTheSecretIsNotTakenForTheRank) {
  Stranger stranger;
  const auto listener = listen_on_fabric(
      {.rank = 1, .size = 2, .secret = secret_of(0), .connect_timeout = 3s}, {loopback()});
  EXPECT_THAT(error_of(1, {{stranger.address()}, {}}, *listener,
                       [&] {
                         stranger.step();
                         Bytes back = stranger.heard;
                         back.resize(transport::Handshake::welcome_bytes);
                         stranger.answer(back);
                       }),
              HasSubstr("another process answers"));
}

// It passes on the hello of rank 1 and the welcome of rank 0, both of which are fresh.
TEST(FabricConnection, WhoStandsAtAnotherAddressGetsNoConnectionWithEitherRank) {
  Stranger between;
  const auto zero = listen_on_fabric(
      {.rank = 0, .size = 2, .secret = secret_of(0), .connect_timeout = 1500ms}, {loopback()});
  const auto one = listen_on_fabric(
      {.rank = 1, .size = 2, .secret = secret_of(0), .connect_timeout = 1500ms}, {loopback()});
  std::string problem;
  std::thread caller([&] { problem = error_of(1, {{between.address()}, {}}, *one, [] {}); });
  bool passed = false;
  const std::string missing = error_of(0, {zero->addresses(), {}}, *zero, [&] {
    between.step();
    if (!between.heard.empty() && !std::exchange(passed, true))
      between.call(zero->addresses().front(), between.heard);
    if (!between.welcome.empty()) between.answer(between.welcome);
  });
  caller.join();
  EXPECT_THAT(problem, HasSubstr("another process answers"));
  EXPECT_THAT(missing,
              HasSubstr("rank 1 (nobody who called as this rank has proved to know the secret)"));
  EXPECT_FALSE(between.welcome.empty());
}

TEST(FabricConnection, ACallWithoutAFreshProofIsNoConnection) {
  FabricWorld world(2);
  const transport::SocketAddress door = world.addresses()[0].front();
  // A whole handshake, as recorded by somebody between two ranks.
  using transport::Handshake;
  const transport::Parties parties{
      .kind = transport::Parties::Kind::data, .caller = 1, .callee = 0, .at = door};
  Handshake recorded(Handshake::Side::caller, secret_of(0), parties);
  Handshake other(Handshake::Side::callee, secret_of(0), {parties.kind, -1, 0, door});
  const Bytes proof = recorded.answer(*other.answer(recorded.begin())).value();

  Stranger silent;
  Stranger repeating;
  silent.call(door, with_pass(recorded.begin()));
  repeating.call(door, with_pass(recorded.begin()));
  std::atomic<bool> repeated{false};
  const std::vector<std::string> problems = world.connect([&](int rank) {
    if (rank == 0) {
      silent.step();
      repeating.step();
      if (!repeating.welcome.empty() && !repeated) {
        repeating.send(proof);
        repeated = true;
      }
      return;
    }
    // Rank 1 proves itself after the strangers.
    while (!repeated) std::this_thread::yield();
  });
  EXPECT_THAT(problems, testing::Each(""));
  expect_data_from(1, world, 100);
  EXPECT_EQ(world.rank(0).loss(), nullptr);
}

}  // namespace
}  // namespace kolo::internal::messenger
