#include "node/status_page.hpp"

#include <algorithm>
#include <cstring>

namespace kolo::node {

bool StatusPage::write(std::span<const std::byte> bytes) {
  if (bytes.size() > most_bytes) return false;
  const std::uint64_t next = version_.load(std::memory_order_relaxed) + 1;
  Text& text = texts_[next % 2];
  // Who still reads what this text was before sees the version that came after it change first.
  std::atomic_thread_fence(std::memory_order_release);
  text.bytes.store(bytes.size(), std::memory_order_relaxed);
  for (std::size_t place = 0; place < bytes.size(); place += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + place, std::min(sizeof word, bytes.size() - place));
    text.content[place / sizeof word].store(word, std::memory_order_relaxed);
  }
  version_.store(next, std::memory_order_release);
  return true;
}

std::vector<std::byte> StatusPage::read() const {
  constexpr int most_attempts = 100;
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    if (version == 0) return {};
    const Text& text = texts_[version % 2];
    const std::uint64_t size = text.bytes.load(std::memory_order_relaxed);
    std::vector<std::byte> bytes(std::min<std::uint64_t>(size, most_bytes));
    for (std::size_t place = 0; place < bytes.size(); place += sizeof(std::uint64_t)) {
      const std::uint64_t word =
          text.content[place / sizeof(std::uint64_t)].load(std::memory_order_relaxed);
      std::memcpy(bytes.data() + place, &word, std::min(sizeof word, bytes.size() - place));
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version_.load(std::memory_order_relaxed) == version) return bytes;
  }
  return {};
}

}  // namespace kolo::node
