// SPDX-License-Identifier: Apache-2.0
// Peers that die, stop or leave; the use of memory, and sleep.
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>

#include "data_world.hpp"
#include "messenger/connected_messenger.hpp"
#include "network.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;

/// More than may be sent unasked.
constexpr std::size_t large = static_cast<std::size_t>(ConnectedMessenger::window_among(2)) + 4096;

/// Fails the test, and ends the wait, after a minute.
template <typename Condition>
void wait_until(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + 60s;
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    std::this_thread::yield();
  }
}

/// Ranks in processes of their own: this one has rank 0.
class Processes {
 public:
  using Body = std::function<void(Messenger&)>;

  /// The others call `body` and then wait to be killed.
  explicit Processes(int ranks, const Body& body, bool with_grandchild = false)
      : board_(static_cast<Board*>(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    for (int rank = 1; rank < ranks; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is ended leaves nothing
        const std::unique_ptr<Messenger> messenger = connect(rank, ranks);
        if (with_grandchild) keep_grandchild();
        body(*messenger);
        for (;;) ::pause();
      }
      children_.push_back(child);
    }
    messenger_ = connect(0, ranks);
  }
  ~Processes() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    if (board_->grandchild > 0) ::kill(board_->grandchild, SIGKILL);
    ::munmap(board_, sizeof(Board));
  }
  Processes& operator=(Processes&&) = delete;

  [[nodiscard]] Messenger& own() { return *messenger_; }
  [[nodiscard]] bool has_grandchild() const { return board_->grandchild > 0; }
  void signal(int rank, int number) const {
    ::kill(children_[static_cast<std::size_t>(rank - 1)], number);
  }

 private:
  struct Board {
    std::atomic<int> listening;
    std::atomic<pid_t> grandchild;
    std::array<transport::SocketAddress, 8> addresses;
  };

  /// It lives on when its parent is killed.
  void keep_grandchild() const {
    const pid_t grandchild = ::fork();
    if (grandchild == 0)
      for (;;) ::pause();
    board_->grandchild = grandchild;
  }

  std::unique_ptr<Messenger> connect(int rank, int ranks) {
    const auto listener = listen({.rank = rank, .size = ranks});
    board_->addresses[static_cast<std::size_t>(rank)] = listener->addresses().front();
    ++board_->listening;
    while (board_->listening < ranks) std::this_thread::yield();
    std::vector<std::vector<transport::SocketAddress>> addresses;
    for (int other = 0; other < ranks; ++other)
      addresses.push_back({board_->addresses[static_cast<std::size_t>(other)]});
    return listener->connect(addresses, [] {});
  }

  Board* board_;
  std::vector<pid_t> children_{};
  std::unique_ptr<Messenger> messenger_{};
};

/// Answers each message of rank 0 with a longer one, forever.
void echo(Messenger& messenger) {
  Transfers transfers(messenger);
  std::vector<std::byte> received(1);
  const std::vector<std::byte> answer = pattern(messenger.rank(), 0, large);
  for (;;) {
    transfers.receive(0, 1, received);
    transfers.finish();
    transfers.send(0, 2, answer);
    transfers.finish();
  }
}

void wait_for_loss(Messenger& messenger, int rank) {
  wait_until([&] {
    messenger.progress();
    static_cast<void>(messenger.may_sleep());
    return messenger.loss() != nullptr;
  });
  EXPECT_EQ(messenger.loss()->kind, FailureKind::peer_left);
  EXPECT_EQ(messenger.loss()->ranks, RankSet::of(rank));
}

TEST(ConnectedMessenger, APeerThatIsKilledIsLostAndTheOthersAreReached) {
  Processes processes(3, echo);
  Messenger& own = processes.own();
  Transfers with_dead(own);
  Transfers with_living(own);
  std::vector<std::byte> received(large);
  const std::vector<std::byte> request(1);
  // Its answer comes when it has all its connections, also that with the rank that is killed.
  with_living.send(2, 1, request);
  with_living.receive(2, 2, received);
  with_living.finish();
  with_dead.send(1, 1, request);
  with_dead.receive(1, 2, received);
  with_dead.step();
  processes.signal(1, SIGKILL);
  wait_for_loss(own, 1);
  // To the dead: nothing is thrown, and nothing ends.
  with_dead.send(1, 1, request);
  for (int round = 0; round < 3; ++round) {
    with_living.send(2, 1, request);
    with_living.receive(2, 2, received);
    with_living.finish();
    EXPECT_TRUE(received == pattern(2, 0, large));
  }
}

TEST(ConnectedMessenger, APeerThatLeavesIsMissedOnlyIfTransfersRemain) {
  for (const bool remain : {false, true}) {
    DataWorld world(3);
    for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
    Transfers here(world.rank(0));
    Transfers there(world.rank(2));
    const std::vector<std::byte> sent(100);
    std::vector<std::byte> received(100);
    if (remain) here.receive(1, 1, received);
    world.rank(1).close(0ns);
    if (remain) {
      wait_for_loss(world.rank(0), 1);
    } else {
      // The other peer's message comes after the goodbye and the end of the connection.
      wait_until([&] { return !world.rank(0).progress() && world.rank(0).may_sleep(); });
      EXPECT_EQ(world.rank(0).loss(), nullptr);
      here.receive(1, 1, received);
      wait_for_loss(world.rank(0), 1);
    }
    here.receive(2, 1, received);
    there.send(0, 1, sent);
    there.finish();
    wait_until([&] { return here.step(); });
  }
}

TEST(ConnectedMessenger, AReceiveThatIsWithdrawnIsNotMissed) {
  DataWorld world(2);
  for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
  std::vector<std::byte> received(100);
  {
    Transfers here(world.rank(0));
    here.receive(1, 1, received);
  }
  world.rank(1).close(0ns);
  wait_until([&] { return !world.rank(0).progress() && world.rank(0).may_sleep(); });
  Transfers here(world.rank(0));
  here.receive(1, 1, received);  // shows that the peer has been seen to leave
  wait_for_loss(world.rank(0), 1);
}

enum class Left : std::uint8_t { nothing, sends, receives, peer };

class ClosedMessenger : public testing::TestWithParam<Left> {};

// Otherwise a session that has failed would take a core.
TEST_P(ClosedMessenger, IsSilent) {
  DataWorld world(3);
  for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
  Messenger& own = world.rank(0);
  Transfers here(own);
  Transfers there(world.rank(1));
  const std::vector<std::byte> sent(large);
  std::vector<std::byte> received(large);
  if (GetParam() == Left::sends) here.send(1, 1, sent);
  if (GetParam() == Left::receives) {
    here.receive(1, 1, received);
    there.send(0, 1, sent);
    there.step();
  }
  if (GetParam() == Left::peer) world.rank(1).close(0ns);
  own.close(0ns);
  world.rank(2).close(0ns);
  std::vector<pollfd> waiting;
  for (const int descriptor : own.descriptors())
    waiting.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  EXPECT_EQ(::poll(waiting.data(), waiting.size(), 0), 0);
}

INSTANTIATE_TEST_SUITE_P(After, ClosedMessenger,
                         testing::Values(Left::nothing, Left::sends, Left::receives, Left::peer));

TEST(ConnectedMessenger, AnIdlePeerThatIsKilledIsLost) {
  Processes processes(2, [](Messenger&) {});
  EXPECT_FALSE(processes.own().progress());
  processes.signal(1, SIGKILL);
  wait_for_loss(processes.own(), 1);
}

TEST(ConnectedMessenger, APeerThatIsKilledIsLostThoughItsChildLives) {
  if (!provider_under_test().empty()) return;  // children inherit what libfabric does not disclose
  Processes processes(
      2, [](Messenger&) {}, /*with_grandchild=*/true);
  wait_until([&] { return processes.has_grandchild(); });
  processes.signal(1, SIGKILL);
  wait_for_loss(processes.own(), 1);
}

TEST(ConnectedMessenger, NothingIsWrittenAfterItIsClosed) {
  Processes processes(2, echo);
  Messenger& own = processes.own();
  std::vector<std::byte> received(large, std::byte{1});
  const std::vector<std::byte> request(1);
  std::vector<std::byte> expected;
  {
    Transfers transfers(own);
    transfers.send(1, 1, request);
    transfers.receive(1, 2, received);
    // In the middle of the transfer: the first bytes are there, not the last.
    wait_until([&] {
      transfers.step();
      return received.front() != std::byte{1} || received[1] != std::byte{1};
    });
    processes.signal(1, SIGSTOP);
    EXPECT_TRUE(own.uses_memory());
    own.close(0ns);
    EXPECT_FALSE(own.uses_memory());
    std::ranges::fill(received, std::byte{9});
    expected = received;
    processes.signal(1, SIGCONT);
    transfers.receive(1, 2, received);  // never completes
    for (int step = 0; step < 1000; ++step) transfers.step();
    EXPECT_GT(transfers.pending(), 0);
  }
  EXPECT_FALSE(own.progress());
  EXPECT_TRUE(received == expected);
  EXPECT_EQ(own.loss(), nullptr);
}

TEST(ConnectedMessenger, AChannelThatIsGivenUpWritesNothing) {
  Processes processes(2, echo);
  Messenger& own = processes.own();
  std::vector<std::byte> received(large, std::byte{1});
  const std::vector<std::byte> request(1);
  {
    Transfers transfers(own);
    transfers.send(1, 1, request);
    transfers.receive(1, 2, received);
    wait_until([&] {
      transfers.step();
      return received.front() != std::byte{1} || received[1] != std::byte{1};
    });
  }
  EXPECT_FALSE(own.uses_memory());
  const std::vector<std::byte> expected = received;
  wait_for_loss(own, 1);
  EXPECT_TRUE(received == expected);
}

TEST(ConnectedMessenger, AnIdleRankSleepsUntilAMessageComes) {
  DataWorld world(2);
  for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
  Transfers here(world.rank(0));
  Transfers there(world.rank(1));
  const std::vector<std::byte> sent = pattern(1, 0, large);
  std::vector<std::byte> received(large);
  const auto readable = [&](int rank, int timeout) {
    std::vector<pollfd> waiting;
    for (const int descriptor : world.rank(rank).descriptors())
      waiting.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
    return ::poll(waiting.data(), waiting.size(), timeout) > 0;
  };
  for (int round = 0; round < 3; ++round) {
    wait_until([&] { return !here.step() && world.rank(0).may_sleep() && !readable(0, 0); });
    EXPECT_FALSE(readable(0, 20));
    // Nor does the sender wake because its network has room.
    wait_until([&] { return !there.step() && world.rank(1).may_sleep() && !readable(1, 0); });
    EXPECT_FALSE(readable(1, 20));
    there.send(0, 1, sent);
    there.step();
    EXPECT_TRUE(readable(0, 10'000));
    here.receive(1, 1, received);
    while (here.pending() + there.pending() > 0) {
      here.step();
      there.step();
    }
    EXPECT_TRUE(received == sent);
  }
}

// A receive that is complete at once must not be slept on.
TEST(ConnectedMessenger, DoesNotSleepOnWhatIsThereAlready) {
  DataWorld world(2);
  for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
  Transfers here(world.rank(0));
  Transfers there(world.rank(1));
  const std::vector<std::byte> sent = pattern(1, 0, 100);
  std::vector<std::byte> received(100);
  there.send(0, 1, sent);
  there.finish();
  wait_until([&] { return world.rank(0).progress(); });
  wait_until([&] { return !world.rank(0).progress(); });
  EXPECT_TRUE(world.rank(0).may_sleep());
  here.receive(1, 1, received);
  EXPECT_FALSE(world.rank(0).may_sleep());
  here.finish();
  EXPECT_TRUE(world.rank(0).may_sleep());
}

// Otherwise a rank that does not receive would have to keep all that the others send.
TEST(ConnectedMessenger, ASenderHoldsBackWhatIsNotReceived) {
  constexpr int messages = 12;
  constexpr std::size_t bytes = static_cast<std::size_t>(ConnectedMessenger::window_among(2)) / 4;
  DataWorld world(2);
  for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
  Transfers here(world.rank(0));
  Transfers there(world.rank(1));
  const std::vector<std::byte> sent = pattern(1, 0, bytes);
  // Whatever was sent before this message has arrived with it.
  const auto pass = [&](Transfers& from, int sender, Transfers& to, Tag tag) {
    const std::vector<std::byte> last(1);
    std::vector<std::byte> arrived(1);
    const int before = from.pending();
    from.send(1 - sender, tag, last);
    to.receive(sender, tag, arrived);
    wait_until([&] {
      from.step();
      to.step();
      return to.pending() == 0 && from.pending() <= before;
    });
  };
  for (int number = 0; number < messages; ++number) there.send(0, 1, sent);
  pass(there, 1, here, 2);
  wait_until([&] {  // the network may still have to report the end of a transfer
    there.step();
    here.step();
    return there.pending() <= messages - 4;
  });
  EXPECT_EQ(there.pending(), messages - 4);
  std::vector<std::byte> received(bytes);
  for (int number = 0; number < messages; ++number) {
    here.receive(1, 1, received);
    while (here.pending() > 0) {
      here.step();
      there.step();
    }
    EXPECT_TRUE(received == sent);
  }
  // Received messages make room for others.
  while (there.pending() > 0) there.step();
  pass(here, 0, there, 3);
  for (int number = 0; number < messages; ++number) there.send(0, 4, sent);
  pass(there, 1, here, 5);
  EXPECT_GE(there.pending(), messages - 4);
  EXPECT_LE(there.pending(), messages - 3);
}

}  // namespace
}  // namespace kolo::internal::messenger
