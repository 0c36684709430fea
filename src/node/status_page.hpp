// SPDX-License-Identifier: Apache-2.0
// A rank's status in memory that the other ranks of its host see.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
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
  bool write(std::span<const std::byte> bytes);
  /// The text that was written last; empty if there is none, or if it changed during every attempt.
  [[nodiscard]] std::vector<std::byte> read() const;

  /// Independent words: each can be read without regard to the others.
  struct Words {
    std::atomic<std::int64_t> progressed;  // time of the last progress: steady clock, nanoseconds
    std::atomic<std::int64_t> submitted;   // time of the last submission, likewise; 0: none
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
