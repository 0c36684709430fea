#include <utility>

#include "backend/batch.hpp"
#include "backend/nccl/execution.hpp"

namespace kolo::backend::nccl {
namespace {

/// Each member from its place to its place; NCCL does those of a group together.
class Broadcast : public GpuExecution {
 public:
  using GpuExecution::GpuExecution;

 private:
  bool begin() override {
    for (const Member* member : batch().members)
      if (member->elements() > 0) return true;
    return false;
  }

  void call() override {
    const int root = root_index(batch());
    for (const Member* member : batch().members) {
      const std::int64_t bytes = member->elements() * signed_size_of(member->dtype);
      if (bytes > 0)
        library().broadcast(member->input, member->output, bytes, root, comm(), stream());
    }
  }
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(const Context& context, Batch batch) {
  return std::make_unique<Broadcast>(context, std::move(batch));
}

}  // namespace kolo::backend::nccl
