// SPDX-License-Identifier: Apache-2.0
// Every owner exchanges all that it has with one other at a time.
#include <array>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "backend/internode/reduction.hpp"

namespace kolo::internal::backend::internode {
namespace {

/// Recursive doubling: after each step twice as many owners have combined the same. As many take
/// part as the largest power of two among them; each of the rest gives its input to one of those,
/// and gets the result.
class DoublingReduction : public InterNodeReduction {
 public:
  explicit DoublingReduction(const SliceTask& task)
      : InterNodeReduction(task),
        core_(static_cast<int>(std::bit_floor(static_cast<unsigned>(owners_.size())))) {
    plan();
    versions_ = take(static_cast<std::int64_t>(steps_.size()) * combined_bytes(elements_));
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      const int partner = owners_.rank(steps_[step].partner);
      int& pending = steps_[step].receiving;
      if (is_one_of_the_rest()) {
        exchange_.receive(partner, lane_ + 1, result_, result_bytes(elements_), pending);
      } else {
        exchange_.receive(partner, lane_, version(step), combined_bytes(elements_), pending);
      }
    }
  }

  void send() override {
    if (steps_.front().sends) send_combined(steps_.front());
  }

  [[nodiscard]] bool advance() override {
    // The next combination takes the place of the one that is being sent.
    while (step_ < steps_.size() && steps_[step_].receiving == 0 && sending_ == 0)
      combine_step(step_++);
    return step_ == steps_.size() && sending_ == 0;
  }

 private:
  /// An exchange with one other owner.
  struct Step {
    int partner = 0;  // its place
    bool sends = true;
    int receiving = 0;
  };

  [[nodiscard]] bool is_one_of_the_rest() const { return owners_.own >= core_; }

  void plan() {
    if (is_one_of_the_rest()) {
      steps_.push_back({.partner = owners_.own - core_});
      return;
    }
    if (owners_.own + core_ < owners_.size())
      steps_.push_back({.partner = owners_.own + core_, .sends = false});
    for (int distance = 1; distance < core_; distance *= 2)
      steps_.push_back({.partner = owners_.own ^ distance});
  }

  [[nodiscard]] std::byte* version(std::size_t step) const {
    return versions_ + static_cast<std::int64_t>(step) * combined_bytes(elements_);
  }

  void send_combined(const Step& step) {
    exchange_.send(owners_.rank(step.partner), lane_, combined_, combined_bytes(elements_),
                   sending_);
  }

  void combine_step(std::size_t step) {
    if (is_one_of_the_rest()) return;
    // Both partners combine in the same order.
    std::array<const std::byte*, 2> inputs{combined_, version(step)};
    if (steps_[step].partner < owners_.own) std::swap(inputs[0], inputs[1]);
    if (step + 1 < steps_.size()) {
      combine(inputs, elements_, combined_);
      return send_combined(steps_[step + 1]);
    }
    finish(inputs, elements_, combined_, result_);
    if (const int rest = owners_.own + core_; rest < owners_.size())
      exchange_.send(owners_.rank(rest), lane_ + 1, result_, result_bytes(elements_), sending_);
  }

  const int core_;  // so many take part
  std::vector<Step> steps_{};
  std::byte* versions_ = nullptr;  // the others', step by step
  std::size_t step_ = 0;
  int sending_ = 0;
};

}  // namespace

std::unique_ptr<InterNodeReduction> make_doubling(const SliceTask& task) {
  return std::make_unique<DoublingReduction>(task);
}

}  // namespace kolo::internal::backend::internode
