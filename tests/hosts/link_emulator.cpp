// SPDX-License-Identifier: Apache-2.0
// Emulates a switch between network namespaces, with a rate, a delay and losses.
//
//   link_emulator [OPTION...] MBIT_PER_SECOND DELAY_US LOSS_PERCENT HOST HOST...
//     --record FILE   writes all packets to FILE
//     --alter N       flips a bit of the content of one TCP packet in N, and mends the checksum
//     --seed N        of the losses and alterations
//
// Creates a tun device `wire` in each, prints "ready", and carries packets until it is killed. The
// address of the first host ends with 1, that of the second with 2, and so on. Each host sends and
// receives at the full rate at once. A packet arrives DELAY_US after its last bit has left, or
// later if others to the same host are before it. Works without netem in the kernel.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <random>
#include <stdexcept>
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
  double altered = 0;              // the share of packets
  std::FILE* recording = nullptr;  // null: none
};

using Packet = std::vector<char>;

std::size_t byte_of(const Packet& packet, std::size_t at) {
  return static_cast<unsigned char>(packet[at]);
}
std::size_t word_of(const Packet& packet, std::size_t at) {
  return byte_of(packet, at) << 8 | byte_of(packet, at + 1);
}

/// Where the content of a TCP packet begins; the end of other packets.
std::size_t begin_of_content(const Packet& packet) {
  constexpr std::size_t tcp = 6;
  if (packet.size() < 40 || byte_of(packet, 9) != tcp) return packet.size();
  const std::size_t segment = (byte_of(packet, 0) & 15) * 4;
  if (segment + 20 > packet.size()) return packet.size();
  return std::min(packet.size(), segment + (byte_of(packet, segment + 12) >> 4) * 4);
}

/// The checksum covers the addresses, the protocol, the length, and the segment.
void mend_checksum(Packet& packet) {
  const std::size_t segment = (byte_of(packet, 0) & 15) * 4;
  const std::size_t checksum = segment + 16;
  packet[checksum] = packet[checksum + 1] = 0;
  std::size_t sum = byte_of(packet, 9) + packet.size() - segment;
  for (std::size_t at = 12; at < 20; at += 2) sum += word_of(packet, at);
  for (std::size_t at = segment; at + 1 < packet.size(); at += 2) sum += word_of(packet, at);
  if ((packet.size() - segment) % 2 != 0) sum += byte_of(packet, packet.size() - 1) << 8;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  packet[checksum] = static_cast<char>(~sum >> 8);
  packet[checksum + 1] = static_cast<char>(~sum);
}

void alter(Packet& packet, std::mt19937& random) {
  const std::size_t begin = begin_of_content(packet);
  if (begin == packet.size()) return;
  std::uniform_int_distribution<std::size_t> bit(begin * 8, packet.size() * 8 - 1);
  const std::size_t at = bit(random);
  packet[at / 8] = static_cast<char>(byte_of(packet, at / 8) ^ 1U << at % 8);
  mend_checksum(packet);
}

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

/// Packets sent to one host. The link of the host carries one packet after another.
class Inbox {
 public:
  Inbox(int wire, const Quality& quality) : wire_(wire), quality_(quality) {}

  /// `sent`: when its last bit has left the sender.
  void take(Clock::time_point sent, nanoseconds duration, Packet packet) {
    free_at_ = std::max(free_at_ + duration, sent);
    if (free_at_ - sent <= max_queue)
      under_way_.push_back({free_at_ + quality_.delay, std::move(packet)});
    else
      free_at_ -= duration;
  }

  void deliver_packets() {
    const Clock::time_point now = Clock::now();
    for (; !under_way_.empty() && under_way_.front().arrival <= now; under_way_.pop_front()) {
      const Packet& bytes = under_way_.front().bytes;
      // A packet that the host does not take is lost.
      [[maybe_unused]] const ssize_t written = ::write(wire_, bytes.data(), bytes.size());
    }
  }

  [[nodiscard]] Clock::time_point next_arrival() const {
    return under_way_.empty() ? Clock::time_point::max() : under_way_.front().arrival;
  }

 private:
  struct UnderWay {
    Clock::time_point arrival;
    Packet bytes;
  };

  int wire_;
  Quality quality_;
  Clock::time_point free_at_{};
  std::deque<UnderWay> under_way_{};
};

/// Packets sent by one host.
class Outbox {
 public:
  Outbox(int wire, const Quality& quality) : wire_(wire), quality_(quality) {}

  void take_packets(std::mt19937& random, std::vector<Inbox>& inboxes) {
    std::bernoulli_distribution lost(quality_.loss);
    std::bernoulli_distribution altered(quality_.altered);
    for (;;) {
      const ssize_t bytes = ::read(wire_, buffer_.data(), buffer_.size());
      if (bytes <= 0) return;
      const Clock::time_point now = Clock::now();
      if (free_at_ - now > max_queue) continue;
      const nanoseconds duration(
          static_cast<std::int64_t>(static_cast<double>(bytes) * quality_.nanoseconds_per_byte));
      free_at_ = std::max(free_at_, now) + duration;
      const std::size_t host = destination(static_cast<std::size_t>(bytes));
      if (lost(random) || host >= inboxes.size()) continue;
      Packet packet(buffer_.begin(), buffer_.begin() + bytes);
      if (quality_.recording != nullptr)
        std::fwrite(packet.data(), 1, packet.size(), quality_.recording);
      if (altered(random)) alter(packet, random);
      inboxes[host].take(free_at_, duration, std::move(packet));
    }
  }

 private:
  /// By the last byte of the address in the IPv4 header; others have no destination.
  [[nodiscard]] std::size_t destination(std::size_t bytes) const {
    constexpr std::size_t header_bytes = 20;
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(buffer_[at]); };
    if (bytes < header_bytes || byte(0) >> 4 != 4) return std::string::npos;
    return std::size_t{byte(header_bytes - 1)} - 1;
  }

  int wire_;
  Quality quality_;
  Clock::time_point free_at_{};  // when the end of the host is
  std::vector<char> buffer_ = std::vector<char>(max_packet_bytes);
};

[[noreturn]] void carry(const std::vector<int>& wires, const Quality& quality, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Outbox> outboxes;
  std::vector<Inbox> inboxes;
  std::vector<pollfd> polled;
  for (const int wire : wires) {
    outboxes.emplace_back(wire, quality);
    inboxes.emplace_back(wire, quality);
    polled.push_back({wire, POLLIN, 0});
  }
  for (;;) {
    const Clock::time_point arrival =
        std::ranges::min_element(inboxes, {}, &Inbox::next_arrival)->next_arrival();
    timespec patience{1, 0};
    if (arrival != Clock::time_point::max())
      patience = {0, std::clamp<long>(duration_cast<nanoseconds>(arrival - Clock::now()).count(), 0,
                                      999'999'999)};
    ::ppoll(polled.data(), polled.size(), &patience, nullptr);
    for (Outbox& outbox : outboxes) outbox.take_packets(random, inboxes);
    for (Inbox& inbox : inboxes) inbox.deliver_packets();
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Quality quality{};
    unsigned seed = 1;
    int next = 1;
    for (; next + 1 < argc && std::string(argv[next]).starts_with("--"); next += 2) {
      const std::string option = argv[next];
      const std::string value = argv[next + 1];
      if (option == "--alter") {
        quality.altered = 1 / std::stod(value);
      } else if (option == "--seed") {
        seed = static_cast<unsigned>(std::stoul(value));
      } else if (option == "--record") {
        quality.recording = std::fopen(value.c_str(), "wb");
        if (quality.recording == nullptr) throw std::invalid_argument("cannot write " + value);
        std::setvbuf(quality.recording, nullptr, _IONBF, 0);  // complete whenever it is killed
      } else {
        throw std::invalid_argument("unknown option " + option);
      }
    }
    if (argc - next < 5)
      throw std::invalid_argument("[OPTION...] MBIT_PER_SECOND DELAY_US LOSS_PERCENT HOST HOST...");
    quality.nanoseconds_per_byte = 8e3 / std::stod(argv[next]);
    quality.delay = std::chrono::microseconds(std::stol(argv[next + 1]));
    quality.loss = std::stod(argv[next + 2]) / 100;
    std::vector<int> wires;
    for (int host = next + 3; host < argc; ++host) wires.push_back(open_wire(argv[host]));
    std::puts("ready");
    std::fflush(stdout);
    carry(wires, quality, seed);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "link_emulator: %s\n", error.what());
    return 1;
  }
}
