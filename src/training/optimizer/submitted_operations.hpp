// SPDX-License-Identifier: Apache-2.0
// The operations that each rank has submitted in a backward pass.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/process_set.hpp"

namespace kolo::internal {

/// Gathers the names of the operations of all ranks, once the ranks know that their gradients
/// differ. Gathering does not hold up the passes of other optimizers: the ranks may end these in
/// different orders.
class SubmittedOperations {
 public:
  /// Collective. `operation` names the allgather; `names` are those of this rank, without zeros in
  /// them.
  void gather(const std::string& operation, const std::vector<std::string>& names,
              const ProcessSet& set);
  /// The future of the names, until `take_partial`; null before `gather`.
  [[nodiscard]] const detail::FutureBase* future() const { return gathering_ ? &future_ : nullptr; }
  /// Waits for the names. Returns the operations that only some ranks have submitted, each with
  /// these ranks of the world. Ranks that have joined do not count. Throws the errors of the
  /// allgather.
  [[nodiscard]] std::map<std::string, std::vector<int>> take_partial(const ProcessSet& set);

 private:
  bool gathering_ = false;
  std::string text_{};               // each name, followed by a zero
  Future<Gathered<char>> future_{};  // last, so destroyed first: the allgather reads the text
};

}  // namespace kolo::internal
