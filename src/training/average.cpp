#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <utility>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/training/metrics.hpp"

namespace kolo {

double average(double value) { return average(std::vector<double>{value}).front(); }

std::vector<double> average(std::vector<double> values, double weight) {
  if (!std::isfinite(weight) || weight < 0.0) {
    throw InvalidArgument(
        fmt::format("kolo::average: a weight must be finite and not negative, not {}", weight));
  }
  // The sums of value * weight, and the sum of weights last: one collective, then the same division
  // on every rank. A rank without weight counts for nothing, even if its value is not a number.
  std::vector<double> sums = std::move(values);
  for (double& value : sums) value = weight == 0.0 ? 0.0 : value * weight;
  sums.push_back(weight);
  allreduce(sums, {.op = ReduceOp::sum});

  const double total_weight = sums.back();
  sums.pop_back();
  for (double& sum : sums) sum = total_weight == 0.0 ? 0.0 : sum / total_weight;
  return sums;
}

}  // namespace kolo
