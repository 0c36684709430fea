// SPDX-License-Identifier: Apache-2.0
// Finds cycles of batches in the log. Used by the root only.
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

/// Finds cycles of batches. A cycle ends as soon as it equals the previous one. If it never does,
/// it ends before the first batch that repeats its operations. Two cycles are equal if they have
/// the same names with the same descriptors and the same unnamed operations in the same order. The
/// optimizer steps in the descriptors may grow, and the grouping of operations into batches may
/// differ.
class Planner {
 public:
  /// The next entry of the log is a batch of the world in which all ranks take part.
  void see(const BatchEntry& batch, const ResponseCache& cache, TimePoint now);
  /// The next entry of the log is of any other kind, so that the current cycle is broken.
  void interrupt();

  /// The plan for the next passes, if the log has just completed enough equal cycles in a row: two
  /// at first. Each plan that ends early doubles this number, and each useful plan halves it.
  [[nodiscard]] std::optional<PlanEntry> plan(std::uint64_t epoch) const;

  /// The last plan has ended after this many passes.
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
    TimePoint last{};  // the time of the last batch
  };

  enum class Relation : std::uint8_t { continues, begins, neither };
  [[nodiscard]] Relation relation(const std::vector<Operation>& batch) const;
  void add(std::vector<Operation> batch, TimePoint now);
  void end_cycle();
  [[nodiscard]] std::optional<std::vector<PlanItem>> compare() const;

  Cycle current_{};
  Cycle previous_{};
  std::optional<std::vector<PlanItem>> next_{};  // set if the current cycle equals the previous one
  int repetitions_ = 0;                          // equal cycles in a row, up to the previous one
  int required_ = 2;
};

}  // namespace kolo::internal::negotiation
