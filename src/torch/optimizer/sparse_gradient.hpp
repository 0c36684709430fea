// SPDX-License-Identifier: Apache-2.0
// Reduces a sparse gradient by gathering all ranks' indices and values.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"

namespace kolo::internal {

/// The reduction of one sparse gradient. The gathered tensors have one row per entry of a gradient.
class SparseReduction {
 public:
  struct Options {
    std::string name;  ///< Name of the operation.
    std::int64_t step;
    ProcessSet process_set;
  };

  /// Submits the operation. `gradient` is sparse (COO). A gradient without entries may have another
  /// number of sparse dimensions than the other ranks' gradients: `sparse_dims`, if not 0, is the
  /// number to use for it.
  SparseReduction(const ::torch::Tensor& gradient, std::int64_t sparse_dims, Options options);

  /// Waits, and returns the sum over ranks times `scale`, coalesced and equal on all ranks. Throws
  /// Mismatch on every rank if ranks were at different steps.
  [[nodiscard]] ::torch::Tensor finish(double scale);

 private:
  void require_same_step(const std::vector<std::int64_t>& rows) const;

  Options options_;
  std::vector<std::int64_t> shape_;
  ::torch::Tensor indices_;  // the first row holds the step, which detects a rank at another step
  ::torch::Tensor values_;
  ::torch::Tensor all_indices_;
  ::torch::Tensor all_values_;
  // Declared last, so destroyed first: the destructor waits for the operation, which uses the
  // tensors above.
  Future<std::vector<std::vector<std::int64_t>>> future_;
};

}  // namespace kolo::internal
