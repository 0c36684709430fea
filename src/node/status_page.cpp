// SPDX-License-Identifier: Apache-2.0
#include "node/status_page.hpp"

#include <algorithm>
#include <cstring>

namespace kolo::internal::node {

bool StatusPage::write(std::span<const std::byte> bytes) {
  if (bytes.size() > max_bytes) return false;
  // Relaxed: only this rank changes the version.
  const std::uint64_t next = version_.load(std::memory_order_relaxed) + 1;
  Text& text = texts_[next % 2];
  // This text was current two versions ago, and a slow reader may still be reading it. The fence
  // pairs with the one in `read`: a reader that sees a word stored below also sees, in its last
  // check, at least the version stored before this fence. It differs from the version with which
  // the reader began, so the reader tries again.
  std::atomic_thread_fence(std::memory_order_release);
  text.bytes.store(bytes.size(), std::memory_order_relaxed);
  for (std::size_t place = 0; place < bytes.size(); place += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + place, std::min(sizeof word, bytes.size() - place));
    text.content[place / sizeof word].store(word, std::memory_order_relaxed);
  }
  // Release: a reader that sees the new version sees the whole text.
  version_.store(next, std::memory_order_release);
  return true;
}

std::vector<std::byte> StatusPage::read() const {
  constexpr int max_attempts = 100;
  for (int attempt = 0; attempt < max_attempts; ++attempt) {
    // Acquire, with the release at the end of `write`: the text of this version is whole.
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    if (version == 0) return {};
    const Text& text = texts_[version % 2];
    const std::uint64_t size = text.bytes.load(std::memory_order_relaxed);
    std::vector<std::byte> bytes(std::min<std::uint64_t>(size, max_bytes));
    for (std::size_t place = 0; place < bytes.size(); place += sizeof(std::uint64_t)) {
      const std::uint64_t word =
          text.content[place / sizeof(std::uint64_t)].load(std::memory_order_relaxed);
      std::memcpy(bytes.data() + place, &word, std::min(sizeof word, bytes.size() - place));
    }
    // The fence orders the check of the version after the words; with the fence in `write`, words
    // of a later text imply a later version.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version_.load(std::memory_order_relaxed) == version) return bytes;
  }
  return {};
}

}  // namespace kolo::internal::node
