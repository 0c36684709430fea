// SPDX-License-Identifier: Apache-2.0
// Averages of metrics over the ranks that have not joined (see `join`).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// The mean of `value` over all ranks, with the same bits on every rank. Collective. Throws the
/// errors of `allreduce`.
[[nodiscard]] KOLO_EXPORT double average(double value);

/// The means of several values, weighted by each rank's `weight` (for example its number of
/// examples). Collective; all ranks must pass the same number of values. Returns zeros if all
/// weights are zero. Throws InvalidArgument for a negative or non-finite weight.
[[nodiscard]] KOLO_EXPORT std::vector<double> average(std::vector<double> values,
                                                      double weight = 1.0);

/// Means of named metrics over the values that all ranks have added. Each value is weighted by its
/// count, so the result is that of a single process that sees all the data.
///
///     kolo::MetricAverage metrics({"loss", "accuracy"});
///     metrics.add("loss", batch_loss, batch_size);  // a mean over `batch_size` examples
///     const auto means = metrics.over_all_ranks();  // means.at("loss")
///
/// Sums are kept in f64. Not thread-safe.
class MetricAverage {
 public:
  /// Throws InvalidArgument for a repeated name.
  KOLO_EXPORT explicit MetricAverage(std::vector<std::string> names);

  /// Adds `value`, the mean of `count` examples. A count of 0 adds nothing, even for NaN. Throws
  /// InvalidArgument for an unknown name and for a negative or non-finite count.
  KOLO_EXPORT void add(const std::string& name, double value, double count = 1.0);

  /// The mean of this rank's values; NaN if there are none. Throws InvalidArgument for an unknown
  /// name.
  [[nodiscard]] KOLO_EXPORT double on_this_rank(const std::string& name) const;

  /// The means over all ranks of the set, with the same bits on each; NaN for a metric without
  /// values. Collective, with one allreduce: ranks without values take part too. Throws Mismatch on
  /// every rank if the names differ, and the errors of `allreduce`.
  [[nodiscard]] KOLO_EXPORT std::map<std::string, double> over_all_ranks(
      const ProcessSet& set = {}) const;

  /// Removes all values.
  KOLO_EXPORT void reset();

  /// Save and restore this rank's sums for a checkpoint. `load_state` throws InvalidArgument unless
  /// the string came from `state` with the same names.
  [[nodiscard]] KOLO_EXPORT std::string state() const;
  KOLO_EXPORT void load_state(const std::string& state);

  /// For `elastic::State`: each rank keeps its own sums.
  static constexpr bool differs_between_ranks = true;

 private:
  [[nodiscard]] std::size_t index_of(const std::string& name) const;

  std::vector<std::string> names_;
  std::vector<double> sums_;  // sums of value * count
  std::vector<double> counts_;
};

}  // namespace kolo
