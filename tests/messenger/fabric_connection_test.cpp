// SPDX-License-Identifier: Apache-2.0
// Connections between ranks: descriptors, signals, providers.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "fabric_world.hpp"
#include "kolo/error.hpp"
#include "messenger/fabric_library.hpp"
#include "messenger/kept_signals.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

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

// The answer is there when it runs again.
TEST(FabricConnection, ACallerThatWasStoppedForLongIsConnected) {
  FabricWorld world(2, 5s, {loopback(1), loopback(2)});
  std::atomic<bool> stopped{false};
  const std::vector<std::string> problems = world.connect([&](int rank) {
    if (rank == 1 && !stopped.exchange(true)) std::this_thread::sleep_for(1500ms);
  });
  EXPECT_THAT(problems, testing::Each(""));
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
