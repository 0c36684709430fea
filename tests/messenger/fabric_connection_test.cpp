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
#include <utility>

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

using Bytes = transport::Handshake::Bytes;

/// A process without the secret, which listens and calls.
class Stranger {
 public:
  Stranger() {
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

  /// Looks for an event, and handles it.
  void step() {
    FabricEvent event;
    if (!read_event(*domain_.events.get(), event)) return;
    if (event.info) {
      heard = event.handshake;
      calls_.push_back(std::move(event.info));
    } else if (event.kind == FI_CONNECTED && !event.handshake.empty()) {
      welcome = event.handshake;
    }
  }
  /// Answers all calls with this message.
  void answer(const Bytes& message) {
    for (const Info& info : std::exchange(calls_, {})) {
      endpoints_.push_back(domain_.make_endpoint(*info));
      check_fabric(::fi_accept(endpoints_.back().get(), message.data(), message.size()),
                   "fi_accept");
    }
  }
  void call(const transport::SocketAddress& at, const Bytes& hello) {
    const Info info(fabric_functions().dupinfo(domain_.info.get()));
    set_address(info->dest_addr, info->dest_addrlen, *info, at);
    std::free(std::exchange(info->src_addr, nullptr));
    info->src_addrlen = 0;
    endpoints_.push_back(domain_.make_endpoint(*info));
    check_fabric(::fi_connect(endpoints_.back().get(), info->dest_addr, hello.data(), hello.size()),
                 "fi_connect");
  }
  /// Sends this on the last connection, as the caller's proof.
  void send(const Bytes& proof) {
    sent_ = proof;
    check_fabric(
        ::fi_send(endpoints_.back().get(), sent_.data(), sent_.size(), nullptr, 0, nullptr),
        "fi_send");
  }

  Bytes heard{};    // the message of the last call
  Bytes welcome{};  // the answer to this process's last call

 private:
  FabricDomain domain_{default_provider};
  std::vector<Info> calls_{};
  std::vector<FabricHandle<fid_ep>> endpoints_{};
  Bytes sent_{};
};

/// The error of rank `rank` of two, which calls these addresses.
std::string error_of(int rank, const std::vector<std::vector<transport::SocketAddress>>& addresses,
                     FabricListener& listener, const std::function<void()>& while_waiting) {
  try {
    static_cast<void>(listener.connect(addresses, secret_of(0), while_waiting));
    return "";
  } catch (const BackendError& error) {
    EXPECT_THAT(error.ranks(), testing::ElementsAre(1 - rank));
    return error.what();
  }
}

TEST(FabricConnection, WhoAnswersWithoutTheSecretIsNotTakenForTheRank) {
  Stranger stranger;
  const auto listener =
      listen_on_fabric({.rank = 1, .size = 2, .connect_timeout = 500ms}, {loopback()});
  EXPECT_THAT(error_of(1, {{stranger.address()}, {}}, *listener,
                       [&] {
                         stranger.step();
                         Bytes back = stranger.heard;
                         back.resize(transport::Handshake::welcome_bytes);
                         stranger.answer(back);
                       }),
              HasSubstr("another process answers"));
}

// It passes on the hello of rank 1 and the welcome of rank 0, which both are fresh.
TEST(FabricConnection, WhoStandsAtAnotherAddressGetsNoConnectionWithEitherRank) {
  Stranger between;
  const auto zero =
      listen_on_fabric({.rank = 0, .size = 2, .connect_timeout = 1500ms}, {loopback()});
  const auto one =
      listen_on_fabric({.rank = 1, .size = 2, .connect_timeout = 1500ms}, {loopback()});
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
  EXPECT_THAT(missing, HasSubstr("rank 1 (no call)"));
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
  silent.call(door, recorded.begin());
  repeating.call(door, recorded.begin());
  std::atomic<bool> repeated{false};
  const std::vector<std::string> problems = world.connect({}, [&](int rank) {
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
  EXPECT_EQ(world.rank(0).loss(), nullptr);
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
