// SPDX-License-Identifier: Apache-2.0
// Connections between ranks: strangers, secrets, descriptors, providers.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>

#include "fabric_world.hpp"
#include "kolo/error.hpp"
#include "messenger/fabric_library.hpp"
#include "messenger/kept_signals.hpp"
#include "network.hpp"
#include "node/file_descriptor.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr std::size_t many_bytes = std::size_t{8} << 20;

int open_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

// Libraries that providers use set some.
TEST(FabricConnection, LeavesNoSignalHandlers) {
  static_cast<void>(found_fabric("tcp"));
  for (const int number : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGILL, SIGABRT}) {
    struct ::sigaction action {};
    ::sigaction(number, nullptr, &action);
    Dl_info library{};
    if (::dladdr(reinterpret_cast<void*>(action.sa_handler), &library) != 0) {
      EXPECT_THAT(library.dli_fname, testing::Not(HasSubstr("infinipath"))) << number;
    }
  }
}

void handler_of_the_program(int /*signal*/) {}

TEST(KeptSignals, LeaveWhatTheProgramSetsMeanwhile) {
  struct ::sigaction before {};
  {
    const KeptSignals kept;
    struct ::sigaction action {};
    action.sa_handler = handler_of_the_program;
    ::sigaction(SIGUSR1, &action, &before);
  }
  struct ::sigaction after {};
  ::sigaction(SIGUSR1, &before, &after);
  EXPECT_EQ(after.sa_handler, handler_of_the_program);
}

TEST(FabricConnection, LeavesNoDescriptors) {
  int before = 0;
  for (int round = 0; round < 4; ++round) {
    {
      FabricWorld world(4);
      for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
      for (int rank = 0; rank < 2; ++rank) world.rank(rank).close(0ns);
      world.rank(3).progress();
    }
    if (round == 0) before = open_descriptors();
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(FabricConnection, StrangersAtThePortAreNoTrouble) {
  FabricWorld world(3);
  std::vector<node::FileDescriptor> strangers;
  for (int number = 0; number < 8; ++number) {
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const transport::SystemAddress address =
        world.addresses()[static_cast<std::size_t>(number) % 3].front().to_system();
    ASSERT_EQ(::connect(strangers.back().get(), address.get(), address.length), 0);
    // Some say nothing, some too little, some much.
    const std::vector<std::byte> garbage =
        pattern(number, 0, std::array{0UL, 3UL, 40UL, 400UL}[static_cast<std::size_t>(number) / 2]);
    ::send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  for (const std::string& problem : world.connect()) EXPECT_EQ(problem, "");
  Transfers here(world.rank(0));
  Transfers there(world.rank(2));
  const std::vector<std::byte> sent = pattern(2, 0, many_bytes);
  std::vector<std::byte> received(many_bytes);
  here.receive(2, 1, received);
  there.send(0, 1, sent);
  while (here.pending() + there.pending() > 0) {
    here.step();
    there.step();
  }
  EXPECT_TRUE(received == sent);
  EXPECT_EQ(world.rank(0).loss(), nullptr);
}

// Connected before the start, it speaks after it.
TEST(FabricConnection, AStrangerWhoSpeaksLateIsNoTrouble) {
  FabricWorld world(2);
  const node::FileDescriptor stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const transport::SystemAddress address = world.addresses()[0].front().to_system();
  ASSERT_EQ(::connect(stranger.get(), address.get(), address.length), 0);
  for (const std::string& problem : world.connect()) EXPECT_EQ(problem, "");
  const std::vector<std::byte> garbage = pattern(0, 0, 200);
  ::send(stranger.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  std::atomic<bool> refused{false};
  std::string problem;
  std::thread late([&] {  // well-formed calls, with a wrong secret
    const auto listener = listen_on_fabric(
        {.rank = 2, .size = 3, .connect_timeout = std::chrono::milliseconds(300)}, {loopback()});
    try {
      static_cast<void>(
          listener->connect({world.addresses()[0], world.addresses()[1], {}}, secret_of(7), [] {}));
    } catch (const BackendError& error) {
      problem = error.what();
    }
    refused = true;
  });
  while (!refused) {
    for (const int rank : {0, 1}) {
      world.rank(rank).progress();
      static_cast<void>(world.rank(rank).may_sleep());
    }
  }
  late.join();
  EXPECT_THAT(problem, HasSubstr("rank 0 (127.0.0.1:"));
  Transfers here(world.rank(0));
  Transfers there(world.rank(1));
  const std::vector<std::byte> sent = pattern(1, 0, 100);
  std::vector<std::byte> received(100);
  here.receive(1, 1, received);
  there.send(0, 1, sent);
  while (here.pending() + there.pending() > 0) {
    here.step();
    there.step();
  }
  EXPECT_TRUE(received == sent);
  while (world.rank(0).progress() || !world.rank(0).may_sleep()) continue;
}

// The answer is there when it runs again.
TEST(FabricConnection, ACallerThatWasStoppedForLongIsConnected) {
  FabricWorld world(2, 5s, {loopback(1), loopback(2)});
  std::atomic<bool> stopped{false};
  const std::vector<std::string> problems = world.connect({}, [&](int rank) {
    if (rank == 1 && !stopped.exchange(true)) std::this_thread::sleep_for(1500ms);
  });
  EXPECT_THAT(problems, testing::Each(""));
}

TEST(FabricConnection, ARankWithoutTheSecretIsNotLetIn) {
  FabricWorld world(3, 2s);
  const std::vector<std::string> problems = world.connect({0, 0, 5});
  EXPECT_THAT(problems[0], HasSubstr("no connection for data with rank 2 (no call)"));
  EXPECT_THAT(problems[1], HasSubstr("rank 2 (no call)"));
  EXPECT_THAT(problems[2], HasSubstr("rank 0 (127.0.0.1:"));
}

/// Answers every call, with what the caller has sent.
class Impostor {
 public:
  Impostor() {
    const Info info(fabric_functions().dupinfo(domain_.info.get()));
    set_address(info->src_addr, info->src_addrlen, *info, loopback());
    check_fabric(::fi_passive_ep(domain_.fabric.get(), info.get(),
                                 domain_.passive.emplace_back().out(), nullptr),
                 "fi_passive_ep");
    fid_pep* const passive = domain_.passive.front().get();
    check_fabric(::fi_pep_bind(passive, &domain_.events->fid, 0), "fi_pep_bind");
    check_fabric(::fi_listen(passive), "fi_listen");
  }

  [[nodiscard]] transport::SocketAddress address() const {
    sockaddr_storage at{};
    std::size_t length = sizeof at;
    check_fabric(::fi_getname(&domain_.passive.front()->fid, &at, &length), "fi_getname");
    return transport::SocketAddress::from(reinterpret_cast<const sockaddr*>(&at));
  }
  void answer() {
    FabricEvent event;
    if (!read_event(*domain_.events.get(), event) || !event.info) return;
    endpoints_.push_back(domain_.make_endpoint(*event.info));
    check_fabric(
        ::fi_accept(endpoints_.back().get(), event.handshake.data(), event.handshake.size()),
        "fi_accept");
  }

 private:
  FabricDomain domain_{default_provider};
  std::vector<FabricHandle<fid_ep>> endpoints_{};
};

TEST(FabricConnection, WhoAnswersWithoutTheSecretIsNotTakenForTheRank) {
  Impostor impostor;
  const auto listener =
      listen_on_fabric({.rank = 1, .size = 2, .connect_timeout = 500ms}, {loopback()});
  try {
    static_cast<void>(
        listener->connect({{impostor.address()}, {}}, secret_of(0), [&] { impostor.answer(); }));
    FAIL();
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), HasSubstr("another process answers"));
    EXPECT_THAT(error.ranks(), testing::ElementsAre(0));
  }
}

TEST(FabricConnection, SaysWhichProviderIsMissing) {
  try {
    static_cast<void>(listen_on_fabric({.size = 2, .provider = "nonsense"}, {loopback()}));
    FAIL();
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), HasSubstr("provider nonsense finds no network"));
  }
}

}  // namespace
}  // namespace kolo::internal::messenger
