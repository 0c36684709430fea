// SPDX-License-Identifier: Apache-2.0
// The algorithm `doubling`, in which owners exchange everything with a few others at a time.
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/internode/algorithms.hpp"
#include "backend/internode/reduction.hpp"

namespace kolo::internal::backend::internode {
namespace {

/// Recursive doubling for any number of owners. In the step of a factor f, groups of f owners send
/// each other what they have combined so far, so that f times as many owners have combined the
/// same. An owner sends few messages, but each has all elements of the slice, so this suits short
/// slices.
class DoublingReduction : public InterNodeReduction {
 public:
  explicit DoublingReduction(const SliceTask& task) : InterNodeReduction(task) {
    for (const StepGroup& group : step_groups(owners_.size())) {
      Step& step = steps_.emplace_back();
      step.group = group;
      step.versions = take((group.factor - 1) * combined_bytes(elements_));
    }
    for (Step& step : steps_)
      step.group.for_each_other(owners_, [&](int digit) {
        exchange_.receive(step.group.rank_with(owners_, digit), lane_, version(step, digit),
                          combined_bytes(elements_), step.receiving);
      });
  }

  void send() override { send_combined(steps_.front()); }

  [[nodiscard]] bool advance() override {
    // The next combination overwrites the one in transmission, so it waits for the sends.
    while (step_ < steps_.size() && steps_[step_].receiving == 0 && sending_ == 0) {
      combine_step(steps_[step_]);
      if (++step_ < steps_.size()) send_combined(steps_[step_]);
    }
    return step_ == steps_.size() && sending_ == 0;
  }

  [[nodiscard]] bool has_sent_all() const override { return step_ + 1 >= steps_.size(); }

 private:
  struct Step {
    StepGroup group{};
    std::byte* versions = nullptr;  // the versions of the other owners
    int receiving = 0;
  };

  [[nodiscard]] std::byte* version(const Step& step, int digit) const {
    return step.versions + step.group.place_of(owners_, digit) * combined_bytes(elements_);
  }

  void send_combined(const Step& step) {
    step.group.for_each_other(owners_, [&](int digit) {
      exchange_.send(step.group.rank_with(owners_, digit), lane_, combined_,
                     combined_bytes(elements_), sending_);
    });
  }

  void combine_step(const Step& step) {
    std::vector<const std::byte*> inputs;
    inputs.reserve(static_cast<std::size_t>(step.group.factor));
    for (int digit = 0; digit < step.group.factor; ++digit)
      inputs.push_back(digit == step.group.own_digit(owners_) ? combined_ : version(step, digit));
    if (&step == &steps_.back())
      finish(inputs, elements_, combined_, result_);
    else
      combine(inputs, elements_, combined_);
  }

  std::vector<Step> steps_{};
  std::size_t step_ = 0;
  int sending_ = 0;
};

}  // namespace

std::unique_ptr<InterNodeReduction> make_doubling(const SliceTask& task) {
  return std::make_unique<DoublingReduction>(task);
}

}  // namespace kolo::internal::backend::internode
