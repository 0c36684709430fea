// Every owner sends to the next one only.
#include "backend/internode/reduction.hpp"

#include <array>
#include <memory>
#include <vector>

namespace kolo::internal::backend::internode {
namespace {

/// Sections go round and are combined as they go; the owner that completes a section sends its
/// result round. The network carries as much as directly, but nobody is sent to by several at once.
/// That a step of one slice overlaps those of others is the matter of who has several.
class RingReduction : public InterNodeReduction {
 public:
  explicit RingReduction(const SliceTask& task);
  ~RingReduction() override;
  RingReduction(const RingReduction&) = delete;
  RingReduction& operator=(const RingReduction&) = delete;

  void send() override;
  [[nodiscard]] bool advance() override;

 private:
  /// How often something arrives while sections are combined; as often again while results go
  /// round.
  [[nodiscard]] int rounds() const { return owners_.size() - 1; }
  /// What arrives in a step.
  [[nodiscard]] Slice arriving(int step) const;
  void combine_and_pass_on(int step);
  void pass_on_result(const Slice& slice);

  std::byte* const versions_;   // of each section, what those before have
  std::vector<int> receiving_;  // by step
  int step_ = 0;
  int sending_ = 0;
};

// The section of place s begins at place s and is complete at place s - 1, who is the last to
// combine it and the first to send it round. So a section is combined in one order, whoever reads
// it. All receives are posted at the start, in the order of the steps, and each owner sends in that
// order too: so one lane serves all steps of a round.

RingReduction::RingReduction(const SliceTask& task)
    : InterNodeReduction(task),
      versions_(exchange_.take(combined_bytes(elements_))),
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

RingReduction::~RingReduction() { exchange_.give_back(versions_); }

Slice RingReduction::arriving(int step) const {
  return step < rounds() ? section(owners_.own - 1 - step)
                         : section(owners_.own - (step - rounds()));
}

void RingReduction::send() {
  const Slice own = section(owners_.own);
  exchange_.send(owners_.rank(owners_.own + 1), lane_, combined_ + combined_bytes(own.begin),
                 combined_bytes(own.elements), sending_);
}

bool RingReduction::advance() {
  while (step_ < 2 * rounds() && receiving_[static_cast<std::size_t>(step_)] == 0) {
    if (step_ < rounds())
      combine_and_pass_on(step_);
    else if (step_ + 1 < 2 * rounds())
      pass_on_result(arriving(step_));
    ++step_;
  }
  return step_ == 2 * rounds() && sending_ == 0;
}

void RingReduction::combine_and_pass_on(int step) {
  const Slice slice = arriving(step);
  std::byte* const own = combined_ + combined_bytes(slice.begin);
  const std::array<const std::byte*, 2> inputs{versions_ + combined_bytes(slice.begin), own};
  if (step + 1 == rounds()) {
    finish(inputs, slice.elements, own, result_ + result_bytes(slice.begin));
    pass_on_result(slice);
  } else {
    combine(inputs, slice.elements, own);
    exchange_.send(owners_.rank(owners_.own + 1), lane_, own, combined_bytes(slice.elements),
                   sending_);
  }
}

void RingReduction::pass_on_result(const Slice& slice) {
  exchange_.send(owners_.rank(owners_.own + 1), lane_ + 1, result_ + result_bytes(slice.begin),
                 result_bytes(slice.elements), sending_);
}

}  // namespace

std::unique_ptr<InterNodeReduction> make_ring(const SliceTask& task) {
  return std::make_unique<RingReduction>(task);
}

}  // namespace kolo::internal::backend::internode
