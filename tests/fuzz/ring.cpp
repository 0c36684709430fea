// SPDX-License-Identifier: Apache-2.0
// The rings in shared memory through which the ranks of a host send messages. Whatever the memory
// of another rank contains, nothing outside it is read, and undamaged messages arrive.
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "kolo/error.hpp"
#include "target.hpp"
#include "transport/shm_transport.hpp"

namespace kolo::internal::fuzz {
namespace {

constexpr int ranks = 2;

struct alignas(64) Line {
  std::byte bytes[64];
};

/// The memory that both ranks write to, allocated once for all conversations.
class Memory {
 public:
  Memory() {
    for (auto& lines : lines_) lines = std::make_unique<Line[]>(count_);
  }

  [[nodiscard]] static Memory& cleared() {
    static Memory memory;
    for (auto& lines : memory.lines_) std::memset(lines.get(), 0, memory.bytes());
    return memory;
  }
  [[nodiscard]] std::byte* of(std::size_t rank) { return lines_[rank][0].bytes; }
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(Line); }

 private:
  std::size_t count_ = transport::ShmTransport::bytes_needed() / sizeof(Line);
  std::array<std::unique_ptr<Line[]>, ranks> lines_{};
};

/// Rank 0 sends to rank 1. Only one conversation exists at a time.
class Host {
 public:
  Host() {
    const std::vector<node::LocalPeer> neighbors{{memory_.of(0), &bells_[0]},
                                                 {memory_.of(1), &bells_[1]}};
    sender_.emplace(neighbors, 0, std::vector{0, 1});
    receiver_.emplace(neighbors, 1, std::vector{0, 1});
  }

  void send(transport::Message message) { sender_->send(1, std::move(message)); }
  void flush() {
    sender_->poll([](int, std::span<const std::byte>) {});
  }
  void receive(const transport::Transport::Receiver& receiver) { receiver_->poll(receiver); }
  /// A word in the receiver's memory, where the rings of both are.
  void damage(std::size_t word, std::uint64_t value) {
    const std::size_t place = word % (memory_.bytes() / sizeof value);
    std::memcpy(memory_.of(1) + place * sizeof value, &value, sizeof value);
  }

 private:
  static node::Doorbell make_bell(node::BellWord& word) {
    return {word, node::Doorbell::EventFds{}};  // nobody sleeps
  }

  Memory& memory_ = Memory::cleared();
  std::array<node::BellWord, ranks> words_{};
  std::array<node::Doorbell, ranks> bells_{make_bell(words_[0]), make_bell(words_[1])};
  std::optional<transport::ShmTransport> sender_{};
  std::optional<transport::ShmTransport> receiver_{};
};

constexpr std::size_t max_message_bytes = 20000;  // more than fits into a ring

/// Messages are cut from this text, in which neighboring bytes differ.
const std::vector<std::byte>& pattern() {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> all(max_message_bytes + 256);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i * 31 + i / 256);
    return all;
  }();
  return bytes;
}

std::span<const std::byte> message_of(std::size_t number, std::size_t bytes) {
  return std::span(pattern()).subspan(number, bytes);
}

/// As strings, since those are compared faster than vectors of bytes.
std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// One command per byte: send, move, receive, or overwrite a word.
class Conversation {
 public:
  explicit Conversation(Bytes bytes) : choices_(bytes) {}

  /// True if all messages arrived, in order.
  bool run() {
    for (int commands = 0; !choices_.done() && commands < max_commands; ++commands) {
      try {
        step();
      } catch (const BackendError&) {
        require(damaged_, "a ring is refused that is not damaged");
      }
    }
    for (int round = 0; !damaged_ && arrived_ < sent_.size(); ++round) {
      require(round < 1000, "a message does not arrive");
      host_.flush();
      receive();
    }
    return !damaged_ && !sent_.empty();
  }

 private:
  static constexpr int max_commands = 64;

  void step() {
    switch (choices_.next() % 8) {
      case 0:
      case 1: return send(choices_.next());
      case 2: return send(choices_.next_two() % max_message_bytes);
      case 3:
      case 4: return host_.flush();
      case 5:
      case 6: return receive();
      default: return damage();
    }
  }

  void send(std::size_t bytes) {
    sent_.push_back(bytes);
    const auto message = message_of(sent_.size(), bytes);
    host_.send({message.begin(), message.end()});
  }

  void damage() {
    damaged_ = true;
    const std::size_t word = choices_.next_two();
    std::uint64_t value = choices_.next_two();
    for (std::size_t shifts = choices_.next() % 4; shifts > 0; --shifts)
      value = value << 16 | (value >> 48);
    host_.damage(word, choices_.next() % 2 == 0 ? value : ~value);
  }

  void receive() {
    const auto take = [&](int, std::span<const std::byte> message) {
      // A copy reads every byte, which AddressSanitizer checks, of damaged messages, too.
      const transport::Message copy(message.begin(), message.end());
      if (damaged_) return;
      require(arrived_ < sent_.size(), "a message that nobody sent");
      const std::size_t bytes = sent_[arrived_++];
      const auto expected = message_of(arrived_, bytes);
      require(text_of(copy) == text_of(expected), "a message is another one");
    };
    host_.receive(take);
  }

  Choices choices_;
  Host host_{};
  std::vector<std::size_t> sent_{};  // lengths
  std::size_t arrived_ = 0;
  bool damaged_ = false;
};

bool run(Bytes bytes) { return Conversation(bytes).run(); }

std::vector<Seed> seeds() {
  const std::string send_small("\x00\x20", 2), send_long("\x02\x90\x00", 3), flush("\x03"),
      receive("\x05");
  return {{"small", send_small + receive + send_small + receive},
          {"empty", std::string("\x00\x00", 2) + receive},
          {"long", send_long + flush + receive + flush + receive},
          {"mixed", send_long + send_small + receive + send_long + flush + receive + receive}};
}

}  // namespace

const Target ring_target{.name = "ring", .max_bytes = 64, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
