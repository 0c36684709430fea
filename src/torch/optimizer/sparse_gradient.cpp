// SPDX-License-Identifier: Apache-2.0
// Reduces a sparse gradient by gathering all ranks' indices and values.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sparse_coo_tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "torch/optimizer/torch_gradient_storage.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::internal {
namespace {

struct Entries {
  ::torch::Tensor indices;  // one row per entry
  ::torch::Tensor values;
};

Entries entries_of(const ::torch::Tensor& gradient, std::int64_t sparse_dims) {
  const ::torch::Tensor sparse = gradient.detach().coalesce();
  if (sparse._nnz() > 0 || sparse_dims == 0) {
    return {sparse.indices().t(), sparse.values().contiguous()};
  }
  std::vector<std::int64_t> shape{0};
  for (std::int64_t i = sparse_dims; i < gradient.dim(); ++i) shape.push_back(gradient.size(i));
  return {at::empty({0, sparse_dims}, sparse.indices().options()),
          at::empty(shape, sparse.values().options())};
}

// The gathered tensors have one row per entry of a gradient.
class SparseReduction : public OwnReduction {
 public:
  SparseReduction(const ::torch::Tensor& gradient, std::int64_t sparse_dims,
                  SparseReductionOptions options, ::torch::Tensor* result);
  void wait() override;

 private:
  void require_same_step(const std::vector<std::int64_t>& rows) const;

  SparseReductionOptions options_;
  ::torch::Tensor* result_;
  std::vector<std::int64_t> shape_;
  ::torch::Tensor indices_;  // the first row holds the step, which detects a rank at another step
  ::torch::Tensor values_;
  ::torch::Tensor all_indices_;
  ::torch::Tensor all_values_;
  // Declared last, so destroyed first: the destructor waits for the operation, which uses the
  // tensors above.
  Future<std::vector<std::vector<std::int64_t>>> future_;
};

SparseReduction::SparseReduction(const ::torch::Tensor& gradient, std::int64_t sparse_dims,
                                 SparseReductionOptions options, ::torch::Tensor* result)
    : options_(std::move(options)), result_(result), shape_(gradient.sizes().vec()) {
  const Entries entries = entries_of(gradient, sparse_dims);
  // The step travels as an extra row of indices, because an allgather, unlike an allreduce, does
  // not carry the number of a step.
  const ::torch::Tensor header =
      at::full({1, entries.indices.size(1)}, options_.step, entries.indices.options());
  indices_ = at::cat({header, entries.indices}).contiguous();
  values_ = entries.values;
  const std::array<ConstTensorView, 2> tensors{view_of(indices_), view_of(values_)};
  const std::array<Allocator, 2> allocators{rows_like(indices_, all_indices_),
                                            rows_like(values_, all_values_)};
  future_ = grouped_allgather_async(tensors, allocators,
                                    {.name = options_.name, .process_set = options_.process_set});
}

void SparseReduction::require_same_step(const std::vector<std::int64_t>& rows) const {
  const std::vector<int> members = options_.process_set.ranks();
  std::string steps;
  std::vector<int> behind;
  std::int64_t first = -1;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < rows.size(); row += rows[i], ++i) {
    if (rows[i] == 0) continue;  // the rank has joined and sends not even the row with the step
    const auto step = all_indices_[row][0].item<std::int64_t>();
    if (first < 0) first = step;
    if (step != first) behind.push_back(members[i]);
    steps += (steps.empty() ? "" : ", ") + std::to_string(step) + " on rank " +
             std::to_string(members[i]);
  }
  if (behind.empty()) return;
  throw Mismatch("'" + options_.name + "': sparse gradients of different steps: step " + steps,
                 options_.name, behind);
}

void SparseReduction::wait() {
  const at::NoGradGuard no_grad;
  const std::vector<std::vector<std::int64_t>> rows = future_.get();
  require_same_step(rows.front());
  std::vector<::torch::Tensor> indices;
  std::int64_t row = 0;
  for (const std::int64_t count : rows.front()) {
    if (count > 0) indices.push_back(all_indices_.slice(0, row + 1, row + count));
    row += count;
  }
  if (options_.scale != 1.0) all_values_.mul_(options_.scale);
  *result_ = at::sparse_coo_tensor(at::cat(indices).t(), all_values_, shape_).coalesce();
}

}  // namespace

std::unique_ptr<OwnReduction> reduce_sparse(const ::torch::Tensor& gradient,
                                            std::int64_t sparse_dims,
                                            SparseReductionOptions options,
                                            ::torch::Tensor* result) {
  return std::make_unique<SparseReduction>(gradient, sparse_dims, std::move(options), result);
}

}  // namespace kolo::internal
