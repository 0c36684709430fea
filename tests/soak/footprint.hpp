// SPDX-License-Identifier: Apache-2.0
// The resources of a process, observed over a long time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo::internal::soak {

/// Resources at one moment, in bytes except for the descriptors.
struct Footprint {
  std::int64_t resident = 0;  // without free memory that the allocator keeps
  std::int64_t shared = 0;    // the part that is shared memory
  std::int64_t descriptors = 0;
  std::int64_t dev_shm = 0;  // used by all processes of the machine
};

/// Returns free memory to the system, then measures. Throws std::runtime_error if there is no
/// /proc.
[[nodiscard]] Footprint measure_footprint();

/// Footprints over time. The first tenth is a warm-up, in which caches fill. The last third must
/// not use more than the first third after the warm-up, plus a margin.
class Watch {
 public:
  /// The margins.
  static constexpr Footprint allowed{
      .resident = 16 << 20, .shared = 32 << 20, .descriptors = 8, .dev_shm = 64 << 20};

  explicit Watch(std::chrono::duration<double> planned) : planned_(planned) {}

  /// `after` is the time since the beginning.
  void add(std::chrono::duration<double> after, const Footprint& footprint);

  struct Summary {
    Footprint first{};
    Footprint early{};  // maximum in the third after the warm-up, or the first value after it
    Footprint most{};   // maximum after the warm-up
    Footprint late{};   // maximum in the last third, or the last value
    Footprint last{};
  };
  /// Throws std::runtime_error if there is no value after the warm-up.
  [[nodiscard]] Summary summary() const;

 private:
  std::chrono::duration<double> planned_;
  Summary summary_{};
  bool any_ = false;
};

/// Describes the resources that have grown by more than the margin; "" if none has.
[[nodiscard]] std::string find_growth(const Watch::Summary& summary);

}  // namespace kolo::internal::soak
