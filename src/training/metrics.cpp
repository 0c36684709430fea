// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_set>
#include <utility>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "training/bytes.hpp"
#include "training/require.hpp"
#include "training/state_text.hpp"

namespace kolo {

using namespace internal;
namespace {

constexpr const char* metrics_state_kind = "kolo.metrics.1";

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + '\n';
  return text;
}

double mean(double sum, double count) {
  return count == 0.0 ? std::numeric_limits<double>::quiet_NaN() : sum / count;
}

// The sums of these numbers over the ranks show whether all ranks have the same names: the two
// halves of a 32-bit checksum, their squares, and 1 to count the ranks, since ranks that have
// joined take no part. f64 adds integers of this size exactly, so the numbers travel with the
// metrics and need no collective of their own.
std::vector<double> fingerprint(const std::vector<std::string>& names) {
  const std::uint32_t checksum = crc32(joined(names));
  const double high = checksum >> 16;
  const double low = checksum & 0xFFFFU;
  return {high, high * high, low, low * low, 1.0};
}

// By the Cauchy-Schwarz inequality, n numbers are equal if and only if n times the sum of their
// squares equals the square of their sum.
bool all_equal(double sum, double sum_of_squares, double ranks) {
  const auto total = static_cast<std::uint64_t>(sum);
  return static_cast<std::uint64_t>(ranks) * static_cast<std::uint64_t>(sum_of_squares) ==
         total * total;
}

}  // namespace

double average(double value) { return average(std::vector<double>{value}).front(); }

std::vector<double> average(std::vector<double> values, double weight) {
  require(std::isfinite(weight) && weight >= 0.0,
          "kolo::average: a weight must be finite and not negative, not {}", weight);
  // One collective sums value * weight and, as the last element, the weights; then every rank does
  // the same division. A weight of 0 excludes the rank even if its value is NaN: 0 * NaN is NaN.
  std::vector<double> sums = std::move(values);
  for (double& value : sums) value = weight == 0.0 ? 0.0 : value * weight;
  sums.push_back(weight);
  allreduce(sums, {.op = ReduceOp::sum});

  const double total_weight = sums.back();
  sums.pop_back();
  for (double& sum : sums) sum = total_weight == 0.0 ? 0.0 : sum / total_weight;
  return sums;
}

MetricAverage::MetricAverage(std::vector<std::string> names)
    : names_(std::move(names)), sums_(names_.size(), 0.0), counts_(names_.size(), 0.0) {
  std::unordered_set<std::string> seen;
  for (const std::string& name : names_) {
    require(seen.insert(name).second, "kolo::MetricAverage: there are two metrics '{}'", name);
  }
}

void MetricAverage::add(const std::string& name, double value, double count) {
  const std::size_t index = index_of(name);
  require(std::isfinite(count) && count >= 0.0,
          "kolo::MetricAverage: the count of '{}' must be finite and not negative, not {}", name,
          count);
  if (count == 0.0) return;
  sums_[index] += value * count;
  counts_[index] += count;
}

double MetricAverage::on_this_rank(const std::string& name) const {
  const std::size_t index = index_of(name);
  return mean(sums_[index], counts_[index]);
}

std::map<std::string, double> MetricAverage::over_all_ranks(const ProcessSet& set) const {
  std::vector<double> totals = sums_;
  totals.insert(totals.end(), counts_.begin(), counts_.end());
  const std::vector<double> marks = fingerprint(names_);
  totals.insert(totals.end(), marks.begin(), marks.end());
  allreduce(totals, {.op = ReduceOp::sum, .process_set = set});

  const double* sums = totals.data();
  const double* counts = sums + names_.size();
  const double* sum_of_marks = counts + names_.size();
  if (!all_equal(sum_of_marks[0], sum_of_marks[1], sum_of_marks[4]) ||
      !all_equal(sum_of_marks[2], sum_of_marks[3], sum_of_marks[4])) {
    throw Mismatch("kolo::MetricAverage: the ranks have metrics of different names; this rank: " +
                   fmt::format("'{}'", fmt::join(names_, "', '")));
  }
  std::map<std::string, double> means;
  for (std::size_t i = 0; i < names_.size(); ++i) means[names_[i]] = mean(sums[i], counts[i]);
  return means;
}

void MetricAverage::reset() {
  std::fill(sums_.begin(), sums_.end(), 0.0);
  std::fill(counts_.begin(), counts_.end(), 0.0);
}

std::string MetricAverage::state() const {
  StateWriter writer(metrics_state_kind);
  // The checksum detects a state of other names, whose sums would be assigned to the wrong metrics.
  writer.add(std::uint64_t{crc32(joined(names_))});
  for (std::size_t i = 0; i < names_.size(); ++i) writer.add(sums_[i]).add(counts_[i]);
  return writer.text();
}

void MetricAverage::load_state(const std::string& state) {
  StateReader reader(metrics_state_kind, state);
  require(reader.natural() == crc32(joined(names_)),
          "kolo::MetricAverage: the state is for metrics of other names");
  // The numbers go into new vectors first: a refused state leaves the metrics unchanged.
  std::vector<double> sums, counts;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    sums.push_back(reader.real());
    counts.push_back(reader.real());
  }
  reader.end();
  sums_ = std::move(sums);
  counts_ = std::move(counts);
}

std::size_t MetricAverage::index_of(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  require(found != names_.end(),
          "kolo::MetricAverage: there is no metric '{}'; known metrics: '{}'", name,
          fmt::join(names_, "', '"));
  return static_cast<std::size_t>(found - names_.begin());
}

}  // namespace kolo
