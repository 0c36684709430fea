#include <utility>

#include "backend/batch.hpp"
#include "backend/gpu/nccl/execution.hpp"

namespace kolo::internal::backend::nccl {
namespace {

/// Each tensor from its place to its place; NCCL does those of a group together.
class Broadcast : public GpuExecution {
 public:
  using GpuExecution::GpuExecution;

 private:
  bool begin() override {
    for (const BatchTensor* tensor : batch().tensors)
      if (tensor->elements() > 0) return true;
    return false;
  }

  void call() override {
    const int root = root_index(batch());
    for (const BatchTensor* tensor : batch().tensors) {
      const std::int64_t bytes = tensor->elements() * signed_size_of(tensor->dtype);
      if (bytes > 0)
        library().broadcast(tensor->input, tensor->output, bytes, root, comm(), stream());
    }
  }
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(const LaunchContext& context, Batch batch) {
  return std::make_unique<Broadcast>(context, std::move(batch));
}

}  // namespace kolo::internal::backend::nccl
