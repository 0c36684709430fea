// SPDX-License-Identifier: Apache-2.0
// Who writes what of a checkpoint. No communication.
//
// The ranks that see the checkpoint's folder write one file each. Those whose shared parts have the
// same large tensors as rank 0's divide these among them. Rank 0 writes the rest: texts and small
// tensors, such as the statistics of a batch normalization, often differ between ranks, and rank
// 0's are to be saved.
#pragma once

#include <string>
#include <vector>

#include "kolo/state_dict.hpp"

namespace kolo::internal {

/// The message of each rank to the others before they divide the tensors.
struct SaveOffer {
  bool sees_folder = false;
  std::string layout{};  // equal on ranks whose shared parts have the same large tensors

  [[nodiscard]] std::string to_text() const;
  /// The empty text is that of a rank that takes no part, because it has joined.
  [[nodiscard]] static SaveOffer from_text(const std::string& text);
};

/// Describes the names, dtypes and shapes of the tensors that ranks divide. Not empty.
[[nodiscard]] std::string layout_of(const StateView& shared);

struct SavePlan {
  int files = 0;
  int file = -1;      // this rank's, from 0; -1: none
  StateView state{};  // the contents of that file
};

/// `shared` and `own` are the flattened parts of this rank. All ranks pass the same offers, by
/// rank.
[[nodiscard]] SavePlan plan_save(const std::vector<SaveOffer>& offers, int rank, StateView shared,
                                 StateView own);

/// Adds the tensors and metadata of a state to another one.
void merge(StateView& into, StateView from);

}  // namespace kolo::internal
