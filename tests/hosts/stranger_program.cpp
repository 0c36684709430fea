// SPDX-License-Identifier: Apache-2.0
// A stranger: connects to the ports that others listen on, says something wrong or nothing, and
// keeps its connections open. Becomes the user 65534.
//
//   stranger_program listen PORT
//   stranger_program flood TABLE ADDRESS RATE only|except PORT
//     TABLE    the table of a host's sockets, such as /proc/net/tcp
//     ADDRESS  where its ports are reached; "-": where each listens
//     RATE     connections per second, over all ports
//
// Runs until SIGTERM, then prints a line.
#include <arpa/inet.h>
#include <grp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rendezvous/message_stream.hpp"

namespace {

constexpr std::size_t max_held = 4000;  // connections

volatile std::sig_atomic_t stopped = 0;

struct Target {
  std::uint32_t address;  // in the network's order
  std::uint16_t port;
};

std::vector<Target> listeners(const char* table) {
  constexpr unsigned listening = 10;
  std::vector<Target> found;
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    unsigned address = 0;
    unsigned port = 0;
    unsigned state = 0;
    if (std::sscanf(line.c_str(), " %*d: %X:%X %*X:%*X %X", &address, &port, &state) == 3 &&
        state == listening)
      found.push_back(
          {address != 0 ? address : htonl(INADDR_LOOPBACK), static_cast<std::uint16_t>(port)});
  }
  return found;
}

int make_socket(bool blocks) {
  return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (blocks ? 0 : SOCK_NONBLOCK), 0);
}

sockaddr_in address_of(const Target& target) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(target.port);
  address.sin_addr.s_addr = target.address;
  return address;
}

/// The beginning of a handshake with a rendezvous server, for which nobody needs a secret.
std::string first_step() {
  namespace rendezvous = kolo::internal::rendezvous;
  namespace transport = kolo::internal::transport;
  const transport::Handshake caller(transport::Handshake::Side::caller, {},
                                    {.kind = transport::Parties::Kind::rendezvous});
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0)
    std::exit(EXIT_FAILURE);
  rendezvous::MessageStream near{kolo::internal::node::FileDescriptor(ends[0])};
  near.send(rendezvous::HandshakeStep{caller.begin()});
  near.write();
  std::array<char, 1000> buffer{};
  const ssize_t bytes = ::recv(ends[1], buffer.data(), buffer.size(), 0);
  ::close(ends[1]);
  return {buffer.data(), static_cast<std::size_t>(std::max(bytes, ssize_t{0}))};
}

class Stranger {
 public:
  /// Opens one connection, and says what its number decides.
  void visit(const Target& target) {
    const int socket = make_socket(/*blocks=*/false);
    if (socket < 0) return;
    const sockaddr_in to = address_of(target);
    const int made = ::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (made != 0 && errno != EINPROGRESS) {
      ::close(socket);
      return;
    }
    ++visits_;
    ports_.insert(target.port);
    const std::span<const char> words = next_words();
    // A connection that is not made yet takes nothing: those visitors stay silent.
    if (!words.empty()) static_cast<void>(::send(socket, words.data(), words.size(), MSG_NOSIGNAL));
    held_.push_back(socket);
    if (held_.size() > max_held) {
      // Half of them close with a reset.
      const linger at_once{.l_onoff = static_cast<int>(visits_ % 2), .l_linger = 0};
      ::setsockopt(held_.front(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      ::close(held_.front());
      held_.pop_front();
    }
  }
  void report() const {
    std::fprintf(stderr, "stranger: %ld visits to %zu ports\n", visits_, ports_.size());
  }

 private:
  std::span<const char> next_words() {
    for (char& letter : garbage_) letter = static_cast<char>(random_());
    switch (visits_ % 7) {
      case 0: return {};
      case 1: return std::span(garbage_).first(11);
      case 2: return garbage_;
      case 3: return std::string_view("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
      case 4: return std::string_view("KoR2\x40\0\0\0", 8);  // the server's mark and half a message
      case 5: return first_step_;
      default: {  // as much as a hello, from rank 1
        const std::array<std::int32_t, 2> ranks{1, 0};
        std::memcpy(garbage_.data() + 16, ranks.data(), sizeof ranks);
        return std::span(garbage_).first(24);
      }
    }
  }

  std::deque<int> held_{};
  long visits_ = 0;
  std::set<std::uint16_t> ports_{};
  std::minstd_rand random_{7};
  std::array<char, 3000> garbage_{};
  std::string first_step_ = first_step();
};

void flood(const char* table, const std::string& where, double rate, bool only,
           std::uint16_t port) {
  Stranger stranger;
  using Clock = std::chrono::steady_clock;
  auto last = Clock::now();
  double due = 0;
  std::size_t next = 0;
  std::vector<Target> targets;
  for (int turn = 0; stopped == 0; ++turn) {
    if (turn % 20 == 0) {  // the table is long: it has the strangers' own sockets
      targets = listeners(table);
      std::erase_if(targets, [&](const Target& one) { return (one.port == port) != only; });
      if (where != "-")
        for (Target& one : targets) one.address = ::inet_addr(where.c_str());
    }
    const auto now = Clock::now();
    due += rate * std::chrono::duration<double>(now - last).count();
    last = now;
    if (due > rate / 10) due = rate / 10;  // a pause is not made up for
    for (; due >= 1 && !targets.empty(); --due) stranger.visit(targets[next++ % targets.size()]);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  stranger.report();
}

void listen_on(std::uint16_t port) {
  const int socket = make_socket(/*blocks=*/true);
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in at = address_of({INADDR_ANY, port});
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(socket, 128) != 0) {
    std::perror("stranger: listen");
    std::exit(1);
  }
  std::deque<int> held;
  while (stopped == 0) {
    const int taken = ::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC);
    if (taken < 0) continue;
    held.push_back(taken);
    if (held.size() <= 64) continue;  // about as many as a rank keeps
    ::close(held.front());
    held.pop_front();
  }
}

}  // namespace

int main(int argc, char** argv) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) {
    std::perror("stranger: setuid");
    return 1;
  }
  struct sigaction action {};
  action.sa_handler = [](int) { stopped = 1; };
  ::sigaction(SIGTERM, &action, nullptr);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "listen") {
    listen_on(static_cast<std::uint16_t>(std::atoi(words[1].c_str())));
  } else if (words.size() == 6 && words[0] == "flood") {
    flood(words[1].c_str(), words[2], std::atof(words[3].c_str()), words[4] == "only",
          static_cast<std::uint16_t>(std::atoi(words[5].c_str())));
  } else {
    std::fputs("stranger: see the source for the arguments\n", stderr);
    return 2;
  }
}
