// SPDX-License-Identifier: Apache-2.0
// Owners exchange ever shorter parts with ever fewer others, and results the other way round.
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/internode/reduction.hpp"

namespace kolo::internal::backend::internode {
namespace {

/// The prime factors of `owners`, the smallest first.
std::vector<int> factors_of(int owners) {
  std::vector<int> factors;
  for (int factor = 2; owners > 1; ++factor)
    for (; owners % factor == 0; owners /= factor) factors.push_back(factor);
  return factors;
}

/// Recursive halving and doubling (Rabenseifner), for any number of owners: in the step of a factor
/// f, groups of f owners divide their range into f parts, and each combines one part for its group.
/// The next step divides that part, in groups of owners of different groups. So each combines a
/// section of the slice after the last step. Results go through the same groups, the last first.
///
/// The network carries as much as with the direct algorithm, in fewer messages: for 64 owners 12
/// of each, and not 126. If their number is prime, this is the direct algorithm.
///
/// Every element is combined in the same order wherever it lies in the slice.
class HalvingReduction : public InterNodeReduction {
 public:
  explicit HalvingReduction(const SliceTask& task) : InterNodeReduction(task) {
    Slice range{0, elements_};
    int distance = 1;
    for (const int factor : factors_of(owners_.size())) {
      Step& step = steps_.emplace_back();
      step.range = range;
      step.distance = distance;
      step.factor = factor;
      range = part_of(step, own_digit(step));
      distance *= factor;
    }
    for (Step& step : steps_) receive(step);
    results_left_ = steps_.size();
  }

  void send() override { send_parts(steps_.front()); }

  [[nodiscard]] bool advance() override {
    while (combined_steps_ < steps_.size() && steps_[combined_steps_].receiving == 0) {
      combine_part(steps_[combined_steps_++]);
      if (combined_steps_ < steps_.size())
        send_parts(steps_[combined_steps_]);
      else
        send_results(steps_.back());
    }
    if (combined_steps_ < steps_.size()) return false;
    while (results_left_ > 0 && steps_[results_left_ - 1].collecting == 0) {
      --results_left_;
      if (results_left_ > 0) send_results(steps_[results_left_ - 1]);
    }
    return results_left_ == 0 && sending_ == 0;
  }

 private:
  struct Step {
    Slice range{};     // what the group divides
    int distance = 1;  // between the places of the group
    int factor = 2;
    std::byte* versions = nullptr;  // the others' of the own part
    int receiving = 0;              // messages with versions
    int collecting = 0;             // messages with results
  };

  [[nodiscard]] int own_digit(const Step& step) const {
    return owners_.own / step.distance % step.factor;
  }
  /// The rank with this digit in the own group.
  [[nodiscard]] int rank_with(const Step& step, int digit) const {
    return owners_.rank(owners_.own + (digit - own_digit(step)) * step.distance);
  }
  [[nodiscard]] static Slice part_of(const Step& step, int digit) {
    const Slice part = slice_of(step.range.elements, digit, step.factor);
    return {step.range.begin + part.begin, part.elements};
  }

  /// Calls `use(digit)` for the others of the group, each rank in another order, so that not all
  /// send to the same one first.
  template <typename Use>
  void for_each_other(const Step& step, Use use) const {
    for (int next = 1; next < step.factor; ++next) use((own_digit(step) + next) % step.factor);
  }

  [[nodiscard]] std::byte* version(const Step& step, int digit) const {
    const int before = digit < own_digit(step) ? digit : digit - 1;
    return step.versions + before * combined_bytes(part_of(step, own_digit(step)).elements);
  }

  void receive(Step& step) {
    const std::int64_t bytes = combined_bytes(part_of(step, own_digit(step)).elements);
    step.versions = take((step.factor - 1) * bytes);
    for_each_other(step, [&](int digit) {
      const int rank = rank_with(step, digit);
      const Slice theirs = part_of(step, digit);
      exchange_.receive(rank, lane_, version(step, digit), bytes, step.receiving);
      exchange_.receive(rank, lane_ + 1, result_ + result_bytes(theirs.begin),
                        result_bytes(theirs.elements), step.collecting);
    });
  }

  void send_parts(const Step& step) {
    for_each_other(step, [&](int digit) {
      const Slice theirs = part_of(step, digit);
      exchange_.send(rank_with(step, digit), lane_, combined_ + combined_bytes(theirs.begin),
                     combined_bytes(theirs.elements), sending_);
    });
  }

  /// What is being sent lies in other parts of the range.
  void combine_part(const Step& step) {
    const Slice own = part_of(step, own_digit(step));
    std::byte* const combined = combined_ + combined_bytes(own.begin);
    std::vector<const std::byte*> inputs;
    for (int digit = 0; digit < step.factor; ++digit)
      inputs.push_back(digit == own_digit(step) ? combined : version(step, digit));
    if (&step == &steps_.back())
      finish(inputs, own.elements, combined, result_ + result_bytes(own.begin));
    else
      combine(inputs, own.elements, combined);
  }

  void send_results(const Step& step) {
    const Slice own = part_of(step, own_digit(step));
    for_each_other(step, [&](int digit) {
      exchange_.send(rank_with(step, digit), lane_ + 1, result_ + result_bytes(own.begin),
                     result_bytes(own.elements), sending_);
    });
  }

  std::vector<Step> steps_{};
  std::size_t combined_steps_ = 0;
  std::size_t results_left_ = 0;  // steps whose results have not all arrived
  int sending_ = 0;
};

}  // namespace

std::unique_ptr<InterNodeReduction> make_halving(const SliceTask& task) {
  return std::make_unique<HalvingReduction>(task);
}

}  // namespace kolo::internal::backend::internode
