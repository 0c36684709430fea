// SPDX-License-Identifier: Apache-2.0
// libfabric in the process: handlers of signals, and providers that are missing.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <csignal>

#include "data_world.hpp"
#include "kolo/error.hpp"
#include "messenger/fabric_library.hpp"
#include "messenger/kept_signals.hpp"

namespace kolo::internal::messenger {
namespace {

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

TEST(FabricConnection, SaysWhichProviderIsMissing) {
  try {
    static_cast<void>(listen_on_fabric({.size = 2}, "nonsense", {loopback()}));
    FAIL();
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), HasSubstr("provider nonsense finds no network"));
  }
}

}  // namespace
}  // namespace kolo::internal::messenger
