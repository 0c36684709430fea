// SPDX-License-Identifier: Apache-2.0
// Used by the root: finds cycles of batches in the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "negotiation/wire/actions.hpp"
#include "negotiation/wire/message.hpp"
#include "negotiation/wire/response_cache.hpp"

namespace kolo::internal::negotiation {

/// A cycle ends where it equals the previous one, else before the first batch that repeats one of
/// its operations. Two cycles are equal if they have the same names with the same descriptors, and
/// the same operations without names in the same order; an optimizer's step may grow. The grouping
/// of operations into batches may differ.
class Planner {
 public:
  /// The next entry of the log is a batch of the world with all its ranks.
  void see(const BatchEntry& batch, const ResponseCache& cache, TimePoint now);
  /// The next entry of the log is anything else.
  void interrupt();

  /// The plan of the next passes, if the log has just shown a cycle for the second time in a row.
  /// Each plan that ended early doubles the required repetitions.
  [[nodiscard]] std::optional<PlanEntry> plan(std::uint64_t epoch) const;

  /// The last plan ended after this many passes.
  void ended(std::uint64_t passes);

 private:
  struct Operation {
    Key key;
    Descriptor descriptor;
    std::size_t batch;
  };
  struct Cycle {
    std::vector<Operation> operations{};
    std::unordered_map<std::string, std::size_t> named{};
    std::vector<std::size_t> numbered{};  // by number
    std::size_t batches = 0;
    TimePoint last{};  // batch
  };

  enum class Relation : std::uint8_t { continues, begins, neither };
  [[nodiscard]] Relation relation(const std::vector<Operation>& batch) const;
  void add(std::vector<Operation> batch, TimePoint now);
  void end_cycle();
  [[nodiscard]] std::optional<std::vector<PlanItem>> compare() const;

  Cycle current_{};
  Cycle previous_{};
  std::optional<std::vector<PlanItem>> next_{};  // if the current cycle is like the previous
  int repetitions_ = 0;  // cycles in a row that are alike, up to the previous
  int required_ = 2;
};

}  // namespace kolo::internal::negotiation
