// SPDX-License-Identifier: Apache-2.0
// The comparison of parameters between the ranks, in the passes that PassReducer reduces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "kolo/optimizer.hpp"
#include "training/first_error.hpp"
#include "training/optimizer/step_number.hpp"
#include "training/parameter_hashes.hpp"

namespace kolo::internal {

/// Compares the parameters in the passes that `ParameterComparison` names. After an error the pass
/// still ends normally, with its gradients reduced.
class PassComparison {
 public:
  explicit PassComparison(const DistributedOptimizerOptions& options)
      : compare_(options.compare), set_(options.process_set) {}

  /// Without parameters, nothing is compared. `hash` is called at the end of a pass that compares,
  /// and returns the same names on all ranks. `count` is their number.
  void set_parameters(std::function<std::size_t()> count,
                      std::function<std::vector<ParameterHash>()> hash) {
    count_ = std::move(count);
    hash_ = std::move(hash);
  }
  /// Begins anew: the next pass of this session is the first one. `subject` names the optimizer in
  /// messages.
  void start(const char* subject);
  /// The next pass compares like the first one, because parameters were added. To be called on all
  /// ranks before the same pass. No effect after a join: a rank that has joined may learn of the
  /// parameters later than the others.
  void note_added() { compared_ = false; }

  /// The numbers of this rank, whose maxima over the ranks `require_equal` takes; empty if the
  /// pass compares nothing. All ranks call this in the same pass, the `pass`-th.
  [[nodiscard]] std::vector<std::int32_t> begin(std::int64_t pass);
  /// `maxima`: the maxima of `begin` over the ranks. Those of all ranks, or first of the ranks
  /// with a backward pass, and then of those without.
  void require_equal(std::span<const std::int32_t> maxima);
  /// Collective: compares by an operation of the optimizer with this number, in the pass of `step`.
  void compare(std::int64_t optimizer, StepNumber& step) noexcept;

  /// Forgets the error of the last pass.
  void clear_error() noexcept { error_.clear(); }
  [[nodiscard]] std::exception_ptr take_error() noexcept { return error_.take(); }

 private:
  ParameterComparison compare_;
  ProcessSet set_;
  const char* subject_ = "";
  std::function<std::size_t()> count_{};
  std::function<std::vector<ParameterHash>()> hash_{};
  std::int64_t epoch_ = 0;               // `detail::step_epoch` at the last `start`
  bool compared_ = false;                // a pass has compared since `start` or `note_added`
  std::vector<ParameterHash> hashes_{};  // empty if this pass does not compare
  FirstError error_{};                   // the error of this pass
};

}  // namespace kolo::internal
