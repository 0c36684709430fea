// SPDX-License-Identifier: Apache-2.0
// The choice among functions that Highway compiles once for each instruction set.
#pragma once

#include <hwy/targets.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kolo::internal {

/// The instruction sets of this machine, as Highway's HWY_* bits. Where Highway's library is a
/// shared one it is loaded here, not with the program: its initialization measures the timer, and
/// would take a large part of the start of every process. If it cannot be loaded, the result is
/// the set that every machine of this architecture has, and a warning is logged.
[[nodiscard]] std::int64_t supported_targets();

/// The instruction sets that may be used. Thread-safe. hwy::ChosenTarget is not used: its inline
/// functions differ between files that are compiled for different sets, and in a build without
/// optimization the linker keeps one of them for all files.
class ChosenTarget {
 public:
  explicit ChosenTarget(std::int64_t targets) { update(targets); }

  /// `targets`: HWY_* bits.
  void update(std::int64_t targets) {
    mask_.store(HWY_CHOSEN_TARGET_SHIFT(targets) | HWY_CHOSEN_TARGET_MASK_SCALAR);
  }
  /// The index of the best one in Highway's tables. `compiled`: HWY_CHOSEN_TARGET_MASK_TARGETS of
  /// the file with the table.
  [[nodiscard]] std::size_t index(std::int64_t compiled) const {
    return hwy::Num0BitsBelowLS1Bit_Nonzero64(static_cast<std::uint64_t>(mask_.load() & compiled));
  }

 private:
  std::atomic<std::int64_t> mask_{};
};

/// The one choice of this process: at first, all instruction sets of this machine.
[[nodiscard]] ChosenTarget& chosen_target();

}  // namespace kolo::internal

// As HWY_EXPORT and HWY_DYNAMIC_DISPATCH, which would need Highway's library when the program is
// loaded. The first entry of Highway's tables chooses; here `chosen_target` has chosen already.
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
#define KOLO_DISPATCH_TABLE(function) static_assert(true)
#define KOLO_DISPATCH(function) HWY_STATIC_DISPATCH(function)
#else
#define KOLO_DISPATCH_TABLE(function)                                                  \
  static constexpr decltype(&HWY_STATIC_DISPATCH(function)) function##_by_target[] = { \
      nullptr, HWY_CHOOSE_TARGET_LIST(function), HWY_CHOOSE_FALLBACK(function)}
#define KOLO_DISPATCH(function) \
  (*function##_by_target[::kolo::internal::chosen_target().index(HWY_CHOSEN_TARGET_MASK_TARGETS)])
#endif
