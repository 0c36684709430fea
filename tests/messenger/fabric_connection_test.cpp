// SPDX-License-Identifier: Apache-2.0
// How ranks connect: strangers, secrets, descriptors, providers.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>

#include "fabric_world.hpp"
#include "kolo/error.hpp"
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

TEST(FabricConnection, ARankWithoutTheSecretIsNotLetIn) {
  FabricWorld world(3, 500ms);
  const std::vector<std::string> problems = world.connect({0, 0, 5});
  EXPECT_THAT(problems[0], HasSubstr("no connection for data with rank 2 (no call)"));
  EXPECT_THAT(problems[1], HasSubstr("rank 2 (no call)"));
  EXPECT_THAT(problems[2], HasSubstr("rank 0 (127.0.0.1:"));
}

TEST(FabricConnection, WhoAnswersWithoutTheSecretIsNotTakenForTheRank) {
  FabricWorld world(2, 500ms);
  EXPECT_THAT(world.connect({0, -5})[1], HasSubstr("another process answers"));
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
