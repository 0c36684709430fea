// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "backend/batch.hpp"
#include "backend/gpu/nccl/execution.hpp"

namespace kolo::internal::backend::nccl {
namespace {

/// Broadcasts each tensor in place. NCCL runs the broadcasts of a group together.
class Broadcast : public GpuExecution {
 public:
  using GpuExecution::GpuExecution;

 private:
  bool begin() override {
    return std::ranges::any_of(batch().tensors,
                               [](const BatchTensor* tensor) { return tensor->elements() > 0; });
  }

  /// The outputs of other ranks are written; a root whose output is its input copies nothing.
  void call() override {
    const int root = root_index(batch());
    for (const BatchTensor* tensor : batch().tensors) {
      if (tensor->bytes() > 0)
        library().broadcast(tensor->input, tensor->output, tensor->bytes(), root, comm(), stream());
    }
  }
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(const LaunchContext& context, Batch batch) {
  return std::make_unique<Broadcast>(context, std::move(batch));
}

}  // namespace kolo::internal::backend::nccl
