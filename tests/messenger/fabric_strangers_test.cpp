// SPDX-License-Identifier: Apache-2.0
// Strangers who answer the calls of ranks, pass them on, or repeat them.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data_world.hpp"
#include "fabric_stranger.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;
using Bytes = transport::Handshake::Bytes;
using testing::HasSubstr;

/// The error of rank `rank` of two, which calls these addresses.
std::string error_of(int rank, const std::vector<std::vector<transport::SocketAddress>>& addresses,
                     DataListener& listener, const std::function<void()>& while_waiting) {
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
  const auto listener =
      listen({.rank = 1, .size = 2, .secret = secret_of(0), .connect_timeout = 3s});
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
  const auto zero =
      listen({.rank = 0, .size = 2, .secret = secret_of(0), .connect_timeout = 1500ms});
  const auto one =
      listen({.rank = 1, .size = 2, .secret = secret_of(0), .connect_timeout = 1500ms});
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
  DataWorld world(2);
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
