// SPDX-License-Identifier: Apache-2.0
// Every owner sends to the next one only.
#include <array>
#include <memory>
#include <vector>

#include "backend/internode/reduction.hpp"

namespace kolo::internal::backend::internode {
namespace {

/// Sections go round and are combined as they go; the owner that completes a section sends its
/// result round. The network carries as much as with the direct algorithm, but no owner receives
/// from several at once. The steps of one slice overlap only with those of other slices.
///
/// The section of place s begins at place s and is complete at place s - 1, which is the last to
/// combine it and the first to send it round. So a section is combined in one order, and all owners
/// get the same bits. All receives are posted at the start, in the order of the steps, and each
/// owner sends in that order too: so one lane serves all steps of a round.
class RingReduction : public InterNodeReduction {
 public:
  explicit RingReduction(const SliceTask& task)
      : InterNodeReduction(task),
        versions_(take(combined_bytes(elements_))),
        receiving_(static_cast<std::size_t>(2 * rounds())) {
    const int before = owners_.rank(owners_.own - 1);
    for (int step = 0; step < 2 * rounds(); ++step) {
      const Slice slice = arriving(step);
      int& pending = receiving_[static_cast<std::size_t>(step)];
      if (step < rounds()) {
        exchange_.receive(before, lane_, versions_ + combined_bytes(slice.begin),
                          combined_bytes(slice.elements), pending);
      } else {
        exchange_.receive(before, lane_ + 1, result_ + result_bytes(slice.begin),
                          result_bytes(slice.elements), pending);
      }
    }
  }

  void send() override { send_combined(section(owners_.own)); }

  [[nodiscard]] bool advance() override {
    while (step_ < 2 * rounds() && receiving_[static_cast<std::size_t>(step_)] == 0) {
      if (step_ < rounds())
        combine_and_send(step_);
      else if (step_ + 1 < 2 * rounds())
        send_result(arriving(step_));
      ++step_;
    }
    return step_ == 2 * rounds() && sending_ == 0;
  }

 private:
  /// How often a section arrives to be combined; as often again, a result arrives.
  [[nodiscard]] int rounds() const { return owners_.size() - 1; }

  /// The section that arrives in a step.
  [[nodiscard]] Slice arriving(int step) const {
    return step < rounds() ? section(owners_.own - 1 - step)
                           : section(owners_.own - (step - rounds()));
  }

  void combine_and_send(int step) {
    const Slice slice = arriving(step);
    std::byte* const own = combined_ + combined_bytes(slice.begin);
    const std::array<const std::byte*, 2> inputs{versions_ + combined_bytes(slice.begin), own};
    if (step + 1 == rounds()) {
      finish(inputs, slice.elements, own, result_ + result_bytes(slice.begin));
      send_result(slice);
    } else {
      combine(inputs, slice.elements, own);
      send_combined(slice);
    }
  }

  void send_combined(const Slice& slice) {
    exchange_.send(owners_.rank(owners_.own + 1), lane_, combined_ + combined_bytes(slice.begin),
                   combined_bytes(slice.elements), sending_);
  }

  void send_result(const Slice& slice) {
    exchange_.send(owners_.rank(owners_.own + 1), lane_ + 1, result_ + result_bytes(slice.begin),
                   result_bytes(slice.elements), sending_);
  }

  std::byte* const versions_;   // of each section, the combination of the owners before
  std::vector<int> receiving_;  // by step
  int step_ = 0;
  int sending_ = 0;
};

}  // namespace

std::unique_ptr<InterNodeReduction> make_ring(const SliceTask& task) {
  return std::make_unique<RingReduction>(task);
}

}  // namespace kolo::internal::backend::internode
