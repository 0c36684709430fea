#include "training/optimizer_options.hpp"

#include <cmath>
#include <sstream>

#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::detail {
namespace {

template <typename T>
[[noreturn]] void refuse(const std::string& option, const T& value, const std::string& reason) {
  std::ostringstream text;
  text << "DistributedOptimizer: " << option << " is " << value << ", but " << reason;
  throw InvalidArgument(text.str());
}

}  // namespace

void require_valid(const DistributedOptimizerOptions& options) {
  const double factor = options.gradient_predivide_factor;
  if (options.op != ReduceOp::average && options.op != ReduceOp::sum &&
      options.op != ReduceOp::adasum) {
    refuse("op", to_string(options.op), "gradients have average, sum and adasum");
  }
  if (options.backward_passes_per_step < 1) {
    refuse("backward_passes_per_step", options.backward_passes_per_step,
           "a step needs at least one backward pass");
  }
  if (!std::isfinite(factor) || factor <= 0.0) {
    refuse("gradient_predivide_factor", factor, "it must be positive and finite");
  }
  if (factor != 1.0 && options.op != ReduceOp::average) {
    refuse("gradient_predivide_factor", factor,
           "op is " + std::string(to_string(options.op)) + ": only an average is divided");
  }
  if (options.num_groups < 0) refuse("num_groups", options.num_groups, "it cannot be negative");
  if (options.num_groups > 0 && !options.groups.empty()) {
    refuse("num_groups", options.num_groups, "groups are given too: choose one of them");
  }
}

Item describe(const DistributedOptimizerOptions& options) {
  std::ostringstream text;
  text << "op " << to_string(options.op) << ", compression " << to_string(options.compression)
       << ", backward_passes_per_step " << options.backward_passes_per_step << ", accumulation "
       << (options.accumulation == Accumulation::sum ? "sum" : "mean")
       << ", gradient_predivide_factor " << options.gradient_predivide_factor
       << ", sparse_as_dense " << (options.sparse_as_dense ? "true" : "false");
  return {"(options)", text.str()};
}

double prescale(const DistributedOptimizerOptions& options) {
  const double passes =
      options.accumulation == Accumulation::mean ? options.backward_passes_per_step : 1.0;
  return 1.0 / (options.gradient_predivide_factor * passes);
}

double postscale(const DistributedOptimizerOptions& options) {
  return options.gradient_predivide_factor;
}

}  // namespace kolo::detail
