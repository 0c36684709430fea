// SPDX-License-Identifier: Apache-2.0
// The server and its clients on TCP, with strangers and relays.
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <list>
#include <thread>

#include "kolo/error.hpp"
#include "tcp_fixture.hpp"

namespace kolo::internal::rendezvous {
namespace {

using testing::HasSubstr;

/// The number of calls of `recv` in this process, which only the server makes.
std::atomic<long> receives{0};

TEST_F(TcpRendezvousTest, OnlyConnectionsWithMessagesAreRead) {
  begin(2, 60s);
  constexpr int exchanges = 200;
  constexpr long silent = 100;
  for (int rank = 0; rank < 2; ++rank)
    fork_rank(rank, [](TcpRendezvous& rendezvous) {
      rendezvous.join();
      bool right = true;
      for (int i = 0; i < exchanges; ++i) right &= exchange(rendezvous, 2);
      rendezvous.leave();
      return right;
    });
  std::vector<node::FileDescriptor> strangers;
  for (long i = 0; i < silent; ++i) strangers.push_back(transport::connect_to(client_.server, 20s));
  receives = 0;
  EXPECT_EQ(run().status, 0);
  EXPECT_THAT(statuses(), testing::Each(0));
  // Each exchange brings several messages, each with up to two calls. If all connections were read
  // for each of them, the calls would be many times as many.
  EXPECT_GE(receives, exchanges);
  EXPECT_LT(receives, exchanges * silent / 2);
}

/// Sends these bytes and reads until the other side closes.
void send_garbage(const transport::Endpoint& to, const std::string& bytes) {
  const node::FileDescriptor socket = transport::connect_to(to, 10s);
  static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  if (bytes == "scan") return;
  MessageStream connection(node::FileDescriptor(::dup(socket.get())));
  while (!connection.closed()) {
    connection.read([](const Message&) { return true; });
    std::this_thread::yield();
  }
}

TEST_F(TcpRendezvousTest, StrangersChangeNothingButALineInTheLog) {
  begin(2);
  for (int rank = 0; rank < 2; ++rank)
    fork_rank(rank, [rank](TcpRendezvous& rendezvous) {
      // The second one comes when the strangers are through.
      if (rank == 1) ::raise(SIGSTOP);
      rendezvous.join();
      const bool right = exchange(rendezvous, 2);
      rendezvous.leave();
      return right;
    });
  std::thread strangers([this] {
    const transport::Endpoint& to = client_.server;
    send_garbage(to, "GET / HTTP/1.1\r\nHost: kolo\r\n\r\n");
    send_garbage(to, "scan");
    send_garbage(to, "");
    send_garbage(to, std::string("KoR2\xff\xff\xff\x7f", 8));
    send_garbage(to, std::string("KoR2\x08\0\0\0abcdefgh", 16));
    ClientOptions wrong = client_;
    wrong.wanted_rank = 0;
    wrong.secret[3] ^= std::byte{1};
    EXPECT_THROW(TcpRendezvous{wrong}, BackendError);
    ClientOptions old = client_;
    old.wanted_rank = 1;
    old.version = "0";
    EXPECT_THROW(TcpRendezvous{old}, BackendError);
    int how = 0;
    ::waitpid(ranks_[1], &how, WUNTRACED);
    ::kill(ranks_[1], SIGCONT);
  });
  const JobEnd end = run();
  strangers.join();
  EXPECT_EQ(end.status, 0) << end.reason;
  EXPECT_THAT(statuses(), testing::Each(0));
  EXPECT_THAT(notes_, HasSubstr("an invalid message"));
  EXPECT_THAT(notes_, HasSubstr("is damaged"));
  EXPECT_THAT(notes_, HasSubstr("does not identify itself"));
  EXPECT_THAT(notes_, HasSubstr("the secret is wrong"));
  EXPECT_THAT(notes_, HasSubstr("use one version everywhere"));
}

TEST_F(TcpRendezvousTest, ManyRefusedStrangersTakeFewOfTheDescriptorsThatThereAre) {
  rlimit limits{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limits), 0);
  const rlimit few{.rlim_cur = 400, .rlim_max = limits.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  begin(1, 60s);
  std::thread serving([this] { run(); });
  const auto count = [] {
    using Entries = std::filesystem::directory_iterator;
    return std::distance(Entries("/proc/self/fd"), Entries());
  };
  const auto before = count();
  constexpr int refused = 150;
  std::list<MessageStream> strangers;
  for (int i = 0; i < refused; ++i) {
    MessageStream& stranger = strangers.emplace_back(transport::connect_to(client_.server, 20s));
    stranger.send(Keepalive{});  // no handshake
    std::string refusal;
    while (refusal.empty() && !stranger.closed()) {
      stranger.write();
      stranger.read([&](const Message& message) {
        refusal = std::get<Refusal>(message).reason;
        return true;
      });
    }
    EXPECT_THAT(refusal, HasSubstr("not begin with a handshake"));
  }
  // An eighth may be strangers, and half as many closing ones. The last one may be served still.
  EXPECT_LE(count() - before - refused, 400 / 8 / 2 + 1);
  server_->stop();
  serving.join();
  ::setrlimit(RLIMIT_NOFILE, &limits);
}

/// Set in a process whose sockets are to be bound to the loopback device, which hides them from
/// whoever asks the kernel without naming the device.
bool binds_to_device = false;

class AnotherUser : public TcpRendezvousTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(BoundToADevice, AnotherUser, testing::Bool());

TEST_P(AnotherUser, IsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  begin(1, 60s);
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    binds_to_device = GetParam();
    int status = ::setgid(65534) == 0 && ::setuid(65534) == 0 ? 1 : 2;
    try {
      const TcpRendezvous rendezvous(client_);
    } catch (const BackendError& error) {
      if (std::string(error.what()).find("another user of this host") != std::string::npos)
        status = 0;
    }
    ::_exit(status);
  }
  std::thread serving([this] { run(); });
  int how = -1;
  ::waitpid(stranger, &how, 0);
  EXPECT_EQ(how, 0);
  server_->stop();
  serving.join();
  EXPECT_THAT(notes_, HasSubstr("it belongs to another user of this host"));
}

TEST_F(TcpRendezvousTest, AStrangerDoesNotDelayTheEndOfTheJob) {
  begin(1, 60s);
  const node::FileDescriptor stranger = transport::connect_to(client_.server, 20s);
  fork_rank(0, [](TcpRendezvous& rendezvous) {
    rendezvous.join();
    rendezvous.leave();
    return true;
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run().status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_THAT(statuses(), testing::Each(0));
}

/// True if eight bytes of the secret in a row are among these.
bool shows_secret(const std::string& bytes, const Secret& secret = make_secret()) {
  for (std::size_t i = 0; i + 8 <= secret.size(); ++i)
    if (bytes.find(std::string(reinterpret_cast<const char*>(&secret.at(i)), 8)) !=
        std::string::npos)
      return true;
  return false;
}

/// Reads until the other side closes, or no bytes arrive for a while.
std::string read_raw(int socket) {
  std::string all;
  std::array<char, 4096> buffer{};
  pollfd waits{.fd = socket, .events = POLLIN, .revents = 0};
  while (::poll(&waits, 1, 200) > 0) {
    const ssize_t bytes = ::recv(socket, buffer.data(), buffer.size(), 0);
    if (bytes <= 0) break;
    all.append(buffer.data(), static_cast<std::size_t>(bytes));
  }
  return all;
}

// Whoever answers at one of the addresses that are tried can repeat what it hears to the server.
TEST_F(TcpRendezvousTest, WhoAnswersAHelloDoesNotLearnTheSecret) {
  begin(1);
  const node::FileDescriptor listener = std::move(transport::listen_at({"127.0.0.1", 0}).front());
  std::thread victim([&] {
    ClientOptions options = client_;
    options.server.port = transport::address_of(listener.get()).port;
    options.wanted_rank = 0;
    EXPECT_THROW(TcpRendezvous{options}, BackendError);
  });
  std::thread impostor([&] {
    node::FileDescriptor socket;
    while (!socket.valid())
      socket = node::FileDescriptor(::accept(listener.get(), nullptr, nullptr));
    const std::string hello = read_raw(socket.get());
    socket = {};
    EXPECT_FALSE(hello.empty());
    EXPECT_FALSE(shows_secret(hello));
    const node::FileDescriptor server = transport::connect_to(client_.server, 20s);
    EXPECT_EQ(::send(server.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(hello.size()));
    EXPECT_FALSE(shows_secret(read_raw(server.get())));
    server_->stop();
  });
  static_cast<void>(run());
  victim.join();
  impostor.join();
}

/// Passes on the bytes between one client and the server, and keeps those that it has seen.
class Relay {
 public:
  explicit Relay(const transport::Endpoint& to) : to_(to) {}

  [[nodiscard]] std::uint16_t port() const { return transport::address_of(listener_.get()).port; }

  /// Until the server's side closes. `forge`: called after each piece from the server, with the
  /// client's socket.
  void run(const std::function<void(int client)>& forge) {
    node::FileDescriptor client;
    while (!client.valid())
      client = node::FileDescriptor(::accept(listener_.get(), nullptr, nullptr));
    const node::FileDescriptor server = transport::connect_to(to_, 20s);
    for (;;) {
      std::array<pollfd, 2> waits{pollfd{.fd = client.get(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = server.get(), .events = POLLIN, .revents = 0}};
      ::poll(waits.data(), waits.size(), -1);
      if (waits[0].revents != 0 && !pass_on(client.get(), server.get())) return;
      if (waits[1].revents != 0 && !pass_on(server.get(), client.get())) return;
      if (waits[1].revents != 0) forge(client.get());
    }
  }
  [[nodiscard]] const std::string& seen() const { return seen_; }

 private:
  bool pass_on(int from, int to) {
    std::array<char, 4096> buffer{};
    const ssize_t bytes = ::recv(from, buffer.data(), buffer.size(), 0);
    if (bytes <= 0) return false;
    seen_.append(buffer.data(), static_cast<std::size_t>(bytes));
    return ::send(to, buffer.data(), static_cast<std::size_t>(bytes), MSG_NOSIGNAL) == bytes;
  }

  transport::Endpoint to_;
  node::FileDescriptor listener_ = std::move(transport::listen_at({"127.0.0.1", 0}).front());
  std::string seen_{};
};

/// A frame of the server, as it looks before the sides trust each other (`tag` empty) or after.
std::string forged_end(const std::string& tag) {
  const Bytes message = encode(End{0, ""});
  const auto length = static_cast<std::uint32_t>(message.size());
  return "KoR2" + std::string(reinterpret_cast<const char*>(&length), sizeof length) + tag +
         std::string(reinterpret_cast<const char*>(message.data()), message.size());
}

// As in a container network whose address exists on several hosts. It can read what passes, but
// neither learns a secret nor speaks for the server.
TEST_F(TcpRendezvousTest, ARelayLearnsNoSecretAndCannotEndTheJob) {
  const Secret seed = [] {
    Secret drawn{};
    drawn.fill(std::byte{0x5a});
    return drawn;
  }();
  for (const std::string& tag : {std::string(), std::string(24, '\x7f')}) {
    ranks_.clear();
    begin(1);
    Relay relay(client_.server);
    client_.server.port = relay.port();
    fork_rank(0, [seed](TcpRendezvous& rendezvous) {
      rendezvous.join();
      // As a session does with the record of rank 0.
      const auto records = rendezvous.gather_all(seed);
      if (!std::ranges::equal(records.at(0), seed)) return false;
      try {
        for (;;) static_cast<void>(rendezvous.gather_all({}));
      } catch (const BackendError& error) {
        // Not ShutDown, as the forged message would have it.
        return std::string(error.what()).find("altered, lost or repeated") != std::string::npos;
      }
    });
    std::thread between([&] {
      int pieces = 0;
      relay.run([&](int client) {
        // After the welcome, the roster and the first result.
        if (++pieces < 5) return;
        const std::string frame = forged_end(tag);
        static_cast<void>(::send(client, frame.data(), frame.size(), MSG_NOSIGNAL));
      });
    });
    EXPECT_EQ(run().status, 1) << "the job goes on without its only rank";
    between.join();
    EXPECT_THAT(statuses(), testing::Each(0));
    EXPECT_NE(relay.seen().find(std::string(16, '\x5a')), std::string::npos);
    EXPECT_FALSE(shows_secret(relay.seen()));
    EXPECT_FALSE(shows_secret(relay.seen(), transport::derive_secret(make_secret(), seed, 1)));
  }
}

}  // namespace
}  // namespace kolo::internal::rendezvous

// They take the places of those of the C library.

extern "C" int socket(int family, int type, int protocol) noexcept {
  const auto made = static_cast<int>(::syscall(SYS_socket, family, type, protocol));
  if (kolo::internal::rendezvous::binds_to_device && (family == AF_INET || family == AF_INET6))
    static_cast<void>(::setsockopt(made, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
  return made;
}

extern "C" ssize_t recv(int socket, void* buffer, std::size_t bytes, int flags) {
  ++kolo::internal::rendezvous::receives;
  return ::recvfrom(socket, buffer, bytes, flags, nullptr, nullptr);
}
