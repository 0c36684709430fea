// The root's look at the log: which batches come again and again.
#pragma once

#include <chrono>
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

/// A cycle ends where it is like the one before, else before the first batch that repeats something
/// of it. Two cycles are alike if they
/// have the same names with the same descriptors, and as many operations without a name, which are
/// compared in their order; an optimizer's step may grow. How the operations are shared out among
/// batches may differ.
class Planner {
 public:
  /// The next entry of the log is a batch of the world with all its ranks.
  void see(const BatchEntry& batch, const ResponseCache& cache, TimePoint now);
  /// It is something else.
  void interrupt();

  /// The plan of what is to come, if the log has just shown a cycle for the second time in a row,
  /// or for as many more times as earlier plans were of little use.
  [[nodiscard]] std::optional<PlanEntry> plan(std::uint64_t epoch) const;

  /// The last plan was repeated so often.
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
