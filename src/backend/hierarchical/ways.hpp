// Which way a slice takes from host to host.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kolo/types.hpp"

namespace kolo::backend::hierarchical {

/// Hosts are combined in an order that depends on the way, so floating-point results may differ
/// between ways in their last bits.
enum class Way : std::uint8_t {
  whole,     ///< Each owner sends all to each other one: one message's time. Few owners only.
  direct,    ///< Each reduces a section for all: two messages' times, sent to all at once.
  ring,      ///< Sections go round twice: each sends to one and receives from one.
  doubling,  ///< All is exchanged with one after the other, log2 of the owners times.
};

/// A way for each size, the same on all ranks.
class Ways {
 public:
  /// What is tried at the start of a session: bytes of a slice.
  static constexpr std::array<std::int64_t, 3> tried_bytes{4 << 10, 64 << 10, 512 << 10};

  /// Without a trial: whole if it is short, else direct.
  Ways() = default;
  /// One for all sizes.
  explicit Ways(Way way);
  /// `seconds[k][w]`: of tried_bytes[k], on the way `tried(owners)[w]`.
  Ways(int owners, std::span<const std::vector<double>> seconds);

  /// What is worth a trial among so many owners, at least two; of one way there is none.
  [[nodiscard]] static std::vector<Way> tried(int owners);

  /// For so many elements of what will be `wire` in the result.
  [[nodiscard]] Way choose(int owners, std::int64_t elements, DType wire) const;

 private:
  [[nodiscard]] Way of_size(std::int64_t bytes) const;

  std::array<Way, 3> ways_{Way::whole, Way::direct, Way::direct};  // at the sizes tried
  bool forced_ = false;
};

}  // namespace kolo::backend::hierarchical
