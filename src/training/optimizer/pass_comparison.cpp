// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/pass_comparison.hpp"

#include <fmt/format.h>

#include "kolo/collectives.hpp"

namespace kolo::internal {

void PassComparison::start(const char* subject) {
  subject_ = subject;
  epoch_ = detail::step_epoch();
  compared_ = false;
}

// The comparison depends on the number of the pass, and on whether earlier summaries compared, so
// all ranks make it in the same passes. A rank whose hashes fail abstains with zeros, because the
// others wait for its numbers.
std::vector<std::int32_t> PassComparison::begin(std::int64_t pass) {
  hashes_.clear();
  if (!hash_ || set_.rank() < 0 || set_.size() == 1) return {};
  const bool first = compare_.at_start && !compared_ && epoch_ == detail::step_epoch();
  if (!first && (compare_.every == 0 || pass == 0 || pass % compare_.every != 0)) return {};
  std::vector<std::int32_t> numbers(encoded_size(count_(), set_), 0);
  error_.attempt([&] {
    hashes_ = hash_();
    numbers = encode(hashes_, set_);
  });
  return numbers;
}

void PassComparison::require_equal(std::span<const std::int32_t> maxima) {
  if (maxima.empty()) return;
  compared_ = true;
  if (hashes_.empty()) return;  // this rank has an error of its own
  const std::size_t size = encoded_size(hashes_.size(), set_);
  error_.attempt([&] {
    for (; maxima.size() >= size; maxima = maxima.subspan(size))
      require_equal_hashes(
          hashes_, maxima.first(size), set_, fmt::format("{}: the parameters", subject_),
          "Call kolo::broadcast_parameters on all ranks before the first step. If parameters "
          "may differ, name them in the option compare.except");
  });
}

void PassComparison::compare(std::int64_t optimizer, StepNumber& step) noexcept {
  error_.attempt([&] {
    std::vector<std::int32_t> numbers = begin(step.passes());
    if (numbers.empty()) return;
    const TensorView view(numbers);
    const GroupedAllreduceOptions max{
        .name = fmt::format("{}(compare)", optimizer), .op = ReduceOp::max, .process_set = set_};
    detail::call_async(detail::GroupedAllreduceCall{{&view, 1}, max, step.of_operation()}).get();
    require_equal(numbers);
  });
}

}  // namespace kolo::internal
