// Means over all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// The mean over all ranks of `value`: the same bits on every rank. Collective. Errors as
/// `allreduce`.
[[nodiscard]] KOLO_EXPORT double average(double value);

/// The means of several values, each rank counting by its `weight` (say, how many examples it saw).
/// Collective; the number of values must be alike. Weights that add up to zero give zeros.
/// Throws InvalidArgument for a negative or non-finite weight.
[[nodiscard]] KOLO_EXPORT std::vector<double> average(std::vector<double> values,
                                                      double weight = 1.0);

/// Means of named metrics over everything that all ranks have added, each value weighted by its
/// count: what one process would have found that saw it all.
///
///     kolo::MetricAverage metrics({"loss", "accuracy"});
///     metrics.add("loss", batch_loss, batch_size);  // a mean over `batch_size` examples
///     const auto means = metrics.over_all_ranks();  // means.at("loss")
///
/// Sums are kept in f64. Not thread-safe.
class MetricAverage {
 public:
  /// Throws InvalidArgument for a name that occurs twice.
  KOLO_EXPORT explicit MetricAverage(std::vector<std::string> names);

  /// `value` is the mean of `count` examples. With a count of 0 it is left out, even if it is no
  /// number. Throws InvalidArgument for an unknown name and a negative or non-finite count.
  KOLO_EXPORT void add(const std::string& name, double value, double count = 1.0);

  /// The mean of what this rank has added; NaN before anything was. Throws InvalidArgument for an
  /// unknown name.
  [[nodiscard]] KOLO_EXPORT double on_this_rank(const std::string& name) const;

  /// The means over all ranks of the set, the same bits on each; NaN where no rank has added
  /// anything. Ranks that have added nothing take part. Collective: one allreduce. Throws Mismatch
  /// on every rank if the names differ; else as `allreduce`.
  [[nodiscard]] KOLO_EXPORT std::map<std::string, double> over_all_ranks(
      const ProcessSet& set = {}) const;

  /// Forgets what was added.
  KOLO_EXPORT void reset();

  /// This rank's sums, for a checkpoint, and back. `load` throws InvalidArgument for anything but
  /// what `state` gave with the same names.
  [[nodiscard]] KOLO_EXPORT std::string state() const;
  KOLO_EXPORT void load(const std::string& state);

 private:
  [[nodiscard]] std::size_t index_of(const std::string& name) const;

  std::vector<std::string> names_;
  std::vector<double> sums_;  // of value * count
  std::vector<double> counts_;
};

}  // namespace kolo
