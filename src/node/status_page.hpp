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

/// In shared memory; initially zeros. Written by one thread of its rank at a time and
/// read by any process, also when the writer was stopped in the middle of writing: of two texts one
/// is whole while the other is written.
class StatusPage {
 public:
  static constexpr std::size_t max_bytes = 3968;

  /// Of these only the last is kept. False, and nothing is changed, if there are too many bytes.
  bool write(std::span<const std::byte> bytes);
  /// What was written last; empty if nothing was, or if it changed again and again.
  [[nodiscard]] std::vector<std::byte> read() const;

  /// Single words, each of which can be read without the others.
  struct Words {
    std::atomic<std::int64_t> progressed;  // steady clock, nanoseconds: the last progress
    std::atomic<std::int64_t> submitted;   // the same: the last submission; 0: none
    std::atomic<std::uint32_t> flags;
    std::atomic<std::uint32_t> alarm;  // set by other ranks: check at once
  };
  static constexpr std::uint32_t blocked = 1;  // all its threads wait for other ranks
  static constexpr std::uint32_t busy = 2;     // something is pending
  static constexpr std::uint32_t ended = 4;    // it has left, or cannot go on
  [[nodiscard]] Words& words() { return words_; }
  [[nodiscard]] const Words& words() const { return words_; }

 private:
  using Word = std::atomic<std::uint64_t>;
  // A lock would not be seen by other processes, and a stopped writer would hold it forever.
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
