// What a process holds of the machine, watched over a long time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo::soak {

/// At one time. Bytes but for the descriptors.
struct Footprint {
  std::int64_t resident = 0;  // without free memory that the allocator has kept
  std::int64_t shared = 0;    // the part of it that is shared memory
  std::int64_t descriptors = 0;
  std::int64_t dev_shm = 0;  // used by all processes of the machine
};

/// Gives free memory back to the system first. Throws std::runtime_error where there is no /proc.
[[nodiscard]] Footprint measure_footprint();

/// Footprints over time. The first tenth is warm-up: caches fill. What is held in the last third
/// must not be more than in the third after the warm-up, but for a margin.
class Watch {
 public:
  /// The margins.
  static constexpr Footprint allowed{
      .resident = 16 << 20, .shared = 32 << 20, .descriptors = 8, .dev_shm = 64 << 20};

  explicit Watch(std::chrono::duration<double> planned) : planned_(planned) {}

  /// `after`: since the beginning.
  void add(std::chrono::duration<double> after, const Footprint& footprint);

  struct Summary {
    Footprint first{};
    Footprint early{};  // the most in the third after the warm-up, or what came first after it
    Footprint most{};   // after the warm-up
    Footprint late{};   // the most in the last third, or the last
    Footprint last{};
  };
  /// Throws std::runtime_error if there is nothing from after the warm-up.
  [[nodiscard]] Summary summary() const;

 private:
  std::chrono::duration<double> planned_;
  Summary summary_{};
  bool any_ = false;
};

/// What has grown by more than is allowed, or "".
[[nodiscard]] std::string find_growth(const Watch::Summary& summary);

}  // namespace kolo::soak
