#include "training/optimizer_number.hpp"

#include <atomic>

#include "kolo/collectives.hpp"

namespace kolo::detail {

std::int64_t agree_on_optimizer_number(const ProcessSet& set) {
  // Ranks that are in different sets have made different numbers of optimizers.
  static std::atomic<std::int64_t> next{0};
  std::int64_t number = next;
  allreduce(number, {.name = "kolo.optimizer_number", .op = ReduceOp::max, .process_set = set});
  next = number + 1;
  return number;
}

}  // namespace kolo::detail
