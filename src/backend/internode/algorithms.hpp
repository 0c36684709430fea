// SPDX-License-Identifier: Apache-2.0
// The choice of the algorithm that reduces a slice between hosts.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/internode/placement.hpp"
#include "backend/mpi/exchange.hpp"
#include "kolo/types.hpp"

namespace kolo::internal::backend::internode {

/// Hosts are combined in an order that depends on the algorithm, so floating-point results may
/// differ between algorithms in their last bits.
enum class InterNodeAlgorithm : std::uint8_t {
  whole,   ///< Each owner sends its input to each other: the time of one message. Few owners only.
  direct,  ///< Each reduces a section for all: the time of two messages, sent to all at once.
  ring,    ///< Sections go round twice: each sends to one and receives from one.
  doubling,  ///< Each exchanges all with one owner after another, log2 of the owners times.
  halving,   ///< Each exchanges ever shorter parts with ever fewer others, and the results back.
};

/// An algorithm for each size, the same on all ranks.
class AlgorithmTable {
 public:
  /// The sizes of slices, in bytes, that are measured at the start of a session.
  static constexpr std::array<std::int64_t, 3> measured_bytes{4 << 10, 64 << 10, 512 << 10};

  /// Without measurements: among few owners whole if it is short, else direct; among more doubling
  /// if it is short, else halving.
  AlgorithmTable() = default;
  /// One for all sizes.
  explicit AlgorithmTable(InterNodeAlgorithm algorithm);
  /// `seconds[k][w]`: of measured_bytes[k], by `candidates(owners)[w]`.
  AlgorithmTable(int owners, std::span<const std::vector<double>> seconds);

  /// The algorithms to measure among so many owners, at least two; empty if there is no choice.
  [[nodiscard]] static std::vector<InterNodeAlgorithm> candidates(int owners);

  /// For so many elements, whose results are of type `wire`.
  [[nodiscard]] InterNodeAlgorithm select(int owners, std::int64_t elements, DType wire) const;

 private:
  [[nodiscard]] static InterNodeAlgorithm usual(int owners, std::size_t size);

  // By size, as `measured_bytes`; nothing where nothing was measured.
  std::array<std::optional<InterNodeAlgorithm>, measured_bytes.size()> algorithms_{};
  bool forced_ = false;
};

/// Measures the algorithms. Collective over the endpoint's ranks; `placement` must contain all of
/// them. Sends a few megabytes several times, or nothing if there is only one choice. Calls
/// `while_waiting`, which may throw, every few milliseconds. Throws if a rank is lost or makes no
/// progress for a minute.
[[nodiscard]] AlgorithmTable measure_algorithms(mpi::Endpoint& endpoint, const Placement& placement,
                                                const std::function<void()>& while_waiting);

}  // namespace kolo::internal::backend::internode
