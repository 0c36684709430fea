// A neighbour whose process is killed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <random>

#include "node/neighbourhood.hpp"

namespace kolo::node {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

void say(int socket) {
  const char word = '.';
  if (::write(socket, &word, 1) != 1) std::abort();
}
void hear(int socket) {
  char word = 0;
  if (::read(socket, &word, 1) != 1) std::abort();
}

/// Shows a word in its memory, and waits to be killed.
[[noreturn]] void be_a_neighbour(const Party& party, int socket) {
  try {
    const Neighbourhood host(party, 4096, 8192, [&] {
      say(socket);
      hear(socket);
    });
    std::memcpy(host.memory(1), "hello", 6);
    say(socket);
    for (;;) ::pause();
  } catch (...) {
    ::_exit(1);
  }
}

TEST(NeighbourhoodOfProcesses, KnowsWhoseProcessHasEnded) {
  const std::string name =
      fmt::format("test-{:08x}{:08x}", std::random_device{}(), std::random_device{}());
  std::array<int, 2> sockets{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
  const FileDescriptor ours(sockets[0]);
  const FileDescriptor its(sockets[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) be_a_neighbour({name, 1, 2}, its.get());

  const Neighbourhood host({name, 0, 2}, 4096, 8192, [&] {
    hear(ours.get());
    say(ours.get());
  });
  hear(ours.get());
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

}  // namespace
}  // namespace kolo::node
