// SPDX-License-Identifier: Apache-2.0
// Sessions between made-up hosts whose control connections are reset again and again.
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "fixture.hpp"

namespace kolo::internal {
namespace {

/// The local port of a TCP socket over IPv4 or IPv6; 0 if it is none.
std::uint16_t own_port(int socket) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  if (::getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) != 0 ||
      protocol != IPPROTO_TCP)
    return 0;
  sockaddr_storage address{};
  length = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool listens(int socket) {
  int value = 0;
  socklen_t length = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value != 0;
}

/// Resets the connections that this process has accepted at ports at which it still listens: those
/// for control messages. Both sides get ECONNRESET. Returns their number.
int reset_connections() {
  std::vector<int> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    open.push_back(std::stoi(entry.path().filename()));
  std::set<std::uint16_t> ports;
  for (const int socket : open)
    if (listens(socket)) ports.insert(own_port(socket));
  int count = 0;
  for (const int socket : open) {
    if (listens(socket) || !ports.contains(own_port(socket)) || own_port(socket) == 0) continue;
    const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
    if (::connect(socket, &nobody, sizeof nobody) == 0) ++count;
  }
  return count;
}

TEST(Reconnecting, ASessionGoesOnThroughResets) {
  const Session session;
  ASSERT_GT(cross_size(), 1);
  const int ranks = size();
  int resets = 0;
  for (int step = 0; step < 300; ++step) {
    if (step % 10 == 5 && local_rank() == 0) resets += reset_connections();
    // New names, so that the ranks negotiate every time.
    std::vector<float> tensor(1000, static_cast<float>(rank() + step));
    allreduce(tensor, {.name = "tensor " + std::to_string(step), .op = ReduceOp::sum});
    ASSERT_EQ(tensor,
              std::vector<float>(1000, static_cast<float>(ranks * (ranks - 1) / 2 + ranks * step)));
  }
  std::int64_t all = resets;
  allreduce(all, {.name = "resets", .op = ReduceOp::sum});
  EXPECT_GE(all, 30);
}

/// While nobody waits, the session's own thread makes the connections again.
TEST(Reconnecting, AComputingRankIsCalledToo) {
  const Session session;
  if (rank() == 0) {
    EXPECT_GT(reset_connections(), 0);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < until) {
  }
  std::int64_t one = 1;
  allreduce(one, {.name = "one", .op = ReduceOp::sum});
  EXPECT_EQ(one, size());
}

TEST(Reconnecting, SessionsEndWhileConnectionsAreReset) {
  for (int i = 0; i < 20; ++i) {
    const Session session;
    std::int64_t one = 1;
    allreduce(one, {.name = "one", .op = ReduceOp::sum});
    EXPECT_EQ(one, size());
    if (rank() == 0) {
      EXPECT_GT(reset_connections(), 0);
    }
  }
}

}  // namespace
}  // namespace kolo::internal
