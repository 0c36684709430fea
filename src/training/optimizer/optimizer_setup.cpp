// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/optimizer_setup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/descriptor.hpp"
#include "base/format.hpp"
#include "kolo/collectives.hpp"
#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

template <typename T>
[[noreturn]] void refuse(const char* subject, const std::string& option, const T& value,
                         const std::string& reason) {
  throw InvalidArgument(fmt::format("{}: {} is {}, but {}", subject, option, value, reason));
}

}  // namespace

std::int64_t agree_on_optimizer_number(const ProcessSet& set) {
  // Ranks in different sets have made different numbers of optimizers, so a local count is not
  // enough: the maximum is unused on every rank of this set. Atomic, because threads may make
  // optimizers of disjoint sets at the same time.
  static std::atomic<std::int64_t> next{0};
  if (detail::agreements_are_deferred()) return next++;
  std::int64_t number = next;
  allreduce(number, {.name = "kolo.optimizer_number", .op = ReduceOp::max, .process_set = set});
  next = number + 1;
  return number;
}

void require_world_to_rejoin(const ProcessSet& set, const char* subject) {
  if (!set.data()) return;
  throw InvalidArgument(std::string(subject) +
                        ": rejoin() with a process set, which has ended with its session. Make the "
                        "set and the optimizer in the function that elastic::run calls");
}

void require_valid(const DistributedOptimizerOptions& options, const char* subject) {
  const double factor = options.gradient_predivide_factor;
  if (options.op != ReduceOp::average && options.op != ReduceOp::sum &&
      options.op != ReduceOp::adasum) {
    refuse(subject, "op", to_string(options.op),
           "gradients can be reduced by average, sum and adasum");
  }
  if (options.op == ReduceOp::adasum && options.hook) {
    refuse(
        subject, "op", to_string(options.op),
        "hook " + options.hook->description() + " cannot be used with adasum; use average or sum");
  }
  if (options.backward_passes_per_step < 1) {
    refuse(subject, "backward_passes_per_step", options.backward_passes_per_step,
           "a step needs at least one backward pass");
  }
  if (!std::isfinite(factor) || factor <= 0.0) {
    refuse(subject, "gradient_predivide_factor", factor, "it must be positive and finite");
  }
  if (!std::isfinite(1.0 / factor) || prescale(options) == 0.0) {
    refuse(subject, "gradient_predivide_factor", factor,
           "gradients divided by it are infinite or zero");
  }
  if (factor != 1.0 && options.op != ReduceOp::average) {
    refuse(subject, "gradient_predivide_factor", factor,
           "op is " + std::string(to_string(options.op)) + ": it works only with average");
  }
  if (options.compare.every < 0)
    refuse(subject, "compare.every", options.compare.every, "it cannot be negative");
  if (options.num_groups < 0)
    refuse(subject, "num_groups", options.num_groups, "it cannot be negative");
  if (options.num_groups > 0 && !options.groups.empty()) {
    refuse(subject, "num_groups", options.num_groups,
           "groups is also set: set only one of the two");
  }
}

void require_short(const std::string& name, const char* subject) {
  constexpr std::size_t added_bytes = 64;  // "N(round R).", with space for the numbers
  constexpr std::size_t max_bytes = max_name_bytes - added_bytes;
  if (name.size() <= max_bytes) return;
  throw InvalidArgument(std::string(subject) + ": the name that begins with '" +
                            name.substr(0, added_bytes) + "' has " + std::to_string(name.size()) +
                            " bytes, at most " + std::to_string(max_bytes) + " are allowed",
                        name);
}

void require_disjoint(const char* subject, std::size_t uses,
                      const std::function<MemoryUse(std::size_t)>& use_of,
                      const std::function<std::string(std::size_t)>& name_of_slot) {
  const Overlap both = find_overlap_of_written(uses, use_of);
  if (!both) return;
  const std::string second = name_of_slot(both->second);
  throw InvalidArgument(
      fmt::format("{}: the gradients '{}' and '{}' share memory. Give each its own, or list a "
                  "gradient once if several parameters share it",
                  subject, name_of_slot(both->first), second),
      second);
}

Item describe(const DistributedOptimizerOptions& options) {
  // Printed by fmt, in the same way in every locale: the ranks may have different ones.
  std::string text = fmt::format(
      "op {}, compression {}, backward_passes_per_step {}, accumulation {}, "
      "gradient_predivide_factor {}, sparse_as_dense {}, hook {}",
      to_string(options.op), to_string(options.compression), options.backward_passes_per_step,
      options.accumulation == Accumulation::sum ? "sum" : "mean", options.gradient_predivide_factor,
      options.sparse_as_dense, options.hook ? options.hook->description() : "none");
  const ParameterComparison& compare = options.compare;
  if (compare != ParameterComparison{})
    text += fmt::format(", compare at_start {} every {} except [{}]", compare.at_start,
                        compare.every, fmt::join(compare.except, ", "));
  return {"(options)", text};
}

// The division by the passes happens before the sum, together with the predivide factor: that keeps
// sums of half types small enough not to overflow.
double prescale(const DistributedOptimizerOptions& options) {
  const double passes =
      options.accumulation == Accumulation::mean ? options.backward_passes_per_step : 1.0;
  return 1.0 / (options.gradient_predivide_factor * passes);
}

double postscale(const DistributedOptimizerOptions& options) {
  return options.gradient_predivide_factor;
}

GroupNumbers listed_groups(
    const std::vector<std::vector<std::string>>& groups,
    const std::function<std::optional<std::string>(const std::string&)>& resolve,
    const char* subject) {
  GroupNumbers numbers;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string where = std::string(subject) + ": groups[" + std::to_string(i) + "]";
    if (groups[i].empty()) throw InvalidArgument(where + " has no names");
    for (const std::string& name : groups[i]) {
      const auto known = resolve(name);
      if (!known) throw InvalidArgument(where + ": there is no parameter '" + name + "'", name);
      if (!numbers.emplace(*known, i).second) {
        throw InvalidArgument(where + ": '" + name + "' is listed twice", name);
      }
    }
  }
  return numbers;
}

GroupNumbers consecutive_groups(const std::vector<std::string>& names, std::size_t count) {
  GroupNumbers numbers;
  count = std::min(count, names.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    numbers.emplace(names[i], i * count / names.size());
  return numbers;
}

}  // namespace kolo::internal
