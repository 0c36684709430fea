// How a sparse gradient is reduced: the ranks' indices and values are gathered.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"

namespace kolo::detail {

/// One sparse gradient under way. Everything is as many rows as the gradient has entries.
class SparseReduction {
 public:
  struct Settings {
    std::string name;  ///< Of the operation.
    std::int64_t step;
    ProcessSet process_set;
  };

  /// Submits. `gradient` is sparse (COO); one without entries is taken to have `sparse_dims` of its
  /// dimensions in the indices, if that is not 0, as the other ranks' have.
  SparseReduction(const ::torch::Tensor& gradient, std::int64_t sparse_dims, Settings settings);

  /// Waits, and returns the ranks' sum times `scale`, coalesced: the same on all ranks. Throws
  /// Mismatch, on every rank, if ranks were at different steps.
  [[nodiscard]] ::torch::Tensor finish(double scale);

 private:
  void require_same_step(const std::vector<std::int64_t>& rows) const;

  Settings settings_;
  std::vector<std::int64_t> shape_;
  ::torch::Tensor indices_;  // the first row holds the step, so that a rank at another is noticed
  ::torch::Tensor values_;
  ::torch::Tensor all_indices_;
  ::torch::Tensor all_values_;
  Future<std::vector<std::vector<std::int64_t>>> future_;  // last, so that it ends first
};

}  // namespace kolo::detail
