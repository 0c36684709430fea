// SPDX-License-Identifier: Apache-2.0
// Emulates a link between two network namespaces, with a rate, a delay and losses.
//
//   link_emulator HOST HOST MBIT_PER_SECOND DELAY_US LOSS_PERCENT [SEED]
//
// Creates a tun device `wire` in each, prints "ready", and carries packets until it is killed. Each
// direction has the full rate. A packet arrives DELAY_US after its last bit has left. Works without
// netem in the kernel.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration_cast;
using std::chrono::nanoseconds;

// Packets that would wait longer are dropped. A large switch queues as much.
constexpr nanoseconds max_queue = std::chrono::milliseconds(50);

constexpr std::size_t max_packet_bytes = 1 << 16;

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

struct Quality {
  double nanoseconds_per_byte;
  nanoseconds delay;
  double loss;
};

/// A tun device in a namespace, which exists as long as the process.
int open_wire(const std::string& host) {
  const int space = checked(::open(("/run/netns/" + host).c_str(), O_RDONLY), host.c_str());
  checked(::setns(space, CLONE_NEWNET), "setns");
  ::close(space);
  const int wire = checked(::open("/dev/net/tun", O_RDWR | O_NONBLOCK), "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, "wire", IFNAMSIZ - 1);
  checked(::ioctl(wire, TUNSETIFF, &request), "TUNSETIFF");
  return wire;
}

/// One direction of the link.
class Lane {
 public:
  Lane(int from, int to, const Quality& quality) : from_(from), to_(to), quality_(quality) {}

  void take_packets(std::mt19937& random) {
    std::bernoulli_distribution lost(quality_.loss);
    for (;;) {
      const ssize_t bytes = ::read(from_, buffer_.data(), buffer_.size());
      if (bytes <= 0) return;
      const Clock::time_point now = Clock::now();
      if (free_at_ - now > max_queue) continue;
      free_at_ = std::max(free_at_, now) +
                 nanoseconds(static_cast<std::int64_t>(static_cast<double>(bytes) *
                                                       quality_.nanoseconds_per_byte));
      if (lost(random)) continue;
      under_way_.push_back({free_at_ + quality_.delay, {buffer_.begin(), buffer_.begin() + bytes}});
    }
  }

  void deliver_packets() {
    const Clock::time_point now = Clock::now();
    for (; !under_way_.empty() && under_way_.front().arrival <= now; under_way_.pop_front()) {
      const std::vector<char>& bytes = under_way_.front().bytes;
      // A packet that the host does not take is lost.
      [[maybe_unused]] const ssize_t written = ::write(to_, bytes.data(), bytes.size());
    }
  }

  [[nodiscard]] Clock::time_point next_arrival() const {
    return under_way_.empty() ? Clock::time_point::max() : under_way_.front().arrival;
  }

 private:
  struct Packet {
    Clock::time_point arrival;
    std::vector<char> bytes;
  };

  int from_;
  int to_;
  Quality quality_;
  Clock::time_point free_at_{};  // when the sender's end of the link is free
  std::deque<Packet> under_way_{};
  std::vector<char> buffer_ = std::vector<char>(max_packet_bytes);
};

[[noreturn]] void carry(const std::array<int, 2>& wires, const Quality& quality, unsigned seed) {
  std::mt19937 random(seed);
  std::array<Lane, 2> lanes{Lane(wires[0], wires[1], quality), Lane(wires[1], wires[0], quality)};
  for (;;) {
    const Clock::time_point arrival = std::min(lanes[0].next_arrival(), lanes[1].next_arrival());
    std::array<pollfd, 2> polled{pollfd{wires[0], POLLIN, 0}, pollfd{wires[1], POLLIN, 0}};
    timespec patience{1, 0};
    if (arrival != Clock::time_point::max())
      patience = {0, std::clamp<long>(duration_cast<nanoseconds>(arrival - Clock::now()).count(), 0,
                                      999'999'999)};
    ::ppoll(polled.data(), polled.size(), &patience, nullptr);
    for (Lane& lane : lanes) lane.take_packets(random);
    for (Lane& lane : lanes) lane.deliver_packets();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: %s HOST HOST MBIT_PER_SECOND DELAY_US LOSS_PERCENT [SEED]\n",
                 argv[0]);
    return 2;
  }
  try {
    const Quality quality{8e3 / std::stod(argv[3]), std::chrono::microseconds(std::stol(argv[4])),
                          std::stod(argv[5]) / 100};
    const unsigned seed = argc > 6 ? static_cast<unsigned>(std::stoul(argv[6])) : 1;
    const std::array<int, 2> wires{open_wire(argv[1]), open_wire(argv[2])};
    std::puts("ready");
    std::fflush(stdout);
    carry(wires, quality, seed);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "link_emulator: %s\n", error.what());
    return 1;
  }
}
