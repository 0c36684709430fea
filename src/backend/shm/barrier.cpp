#include <utility>

#include "backend/shm/executions.hpp"
#include "backend/shm/pipeline.hpp"

namespace kolo::backend::shm {
namespace {

/// One piece of nothing.
class Barrier : public Pipeline {
 public:
  using Pipeline::Pipeline;

 private:
  Next begin(std::size_t /*slot*/) override {
    return std::exchange(begun_, true) ? Next::none : Next::piece;
  }
  void deposit(std::size_t /*slot*/) override {}
  bool collect(std::size_t /*slot*/) override { return true; }

  bool begun_ = false;
};

}  // namespace

std::unique_ptr<Execution> make_barrier(Arena& arena, Batch batch, int index, Hosts hosts) {
  return std::make_unique<Barrier>(arena, std::move(batch), index, std::move(hosts));
}

}  // namespace kolo::backend::shm
