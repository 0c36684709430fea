// SPDX-License-Identifier: Apache-2.0
// A rank's status in memory that the other ranks of its host see.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace kolo::internal::node {

/// Lies in shared memory and is initially zero. One thread of its rank at a time writes it; any
/// process reads it, even if the writer was stopped in the middle of a write: one of the two texts
/// is whole while the other is written.
class StatusPage {
 public:
  static constexpr std::size_t max_bytes = 3968;

  /// Replaces the text. Returns false, without a change, if there are too many bytes.
  bool write(std::span<const std::byte> bytes) {
    if (bytes.size() > max_bytes) return false;
    // Relaxed: only this rank changes the version.
    const std::uint64_t next = version_.load(std::memory_order_relaxed) + 1;
    Text& text = texts_[next % 2];
    // This text was current two versions ago, and a slow reader may still be reading it. The fence
    // pairs with the one in `read`: a reader that sees a word stored below also sees, in its last
    // check, at least the version stored before this fence. That version differs from the one with
    // which the reader began, so the reader tries again.
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
  /// The text that was written last; empty if there is none, or if it changed during every attempt.
  [[nodiscard]] std::vector<std::byte> read() const {
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

  /// Independent words: each can be read without regard to the others.
  struct Words {
    std::atomic<std::int64_t> progressed;  // time of the last progress: steady clock, nanoseconds
    std::atomic<std::int64_t> submitted;   // time of the last submission; 0: none
    std::atomic<std::uint32_t> flags;
    std::atomic<std::uint32_t> alarm;  // set by other ranks: check for failures at once
  };
  static constexpr std::uint32_t blocked = 1;  // all threads of the rank wait for other ranks
  static constexpr std::uint32_t busy = 2;     // operations are pending
  static constexpr std::uint32_t ended = 4;    // the rank has left, or cannot go on
  [[nodiscard]] Words& words() { return words_; }
  [[nodiscard]] const Words& words() const { return words_; }

 private:
  using Word = std::atomic<std::uint64_t>;
  // Locks would not work across processes, and a stopped writer would hold one forever.
  static_assert(Word::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);
  struct Text {
    Word bytes;
    std::array<Word, max_bytes / sizeof(std::uint64_t)> content;
  };

  alignas(64) Words words_;
  alignas(64) Word version_;  // text version_ % 2 is whole
  std::array<Text, 2> texts_;
};

}  // namespace kolo::internal::node
