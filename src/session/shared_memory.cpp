// The public face of shared memory: kolo/shared_memory.hpp.
#include "kolo/shared_memory.hpp"

#include <algorithm>

#include "node/shared_memory.hpp"
#include "session/current.hpp"

namespace kolo::detail {

std::shared_ptr<node::SharedHeap> shared_heap() { return session::current_engine()->heap(); }

void* allocate_shared(const std::shared_ptr<node::SharedHeap>& heap, std::size_t bytes) {
  return heap ? heap->allocate(std::max<std::size_t>(bytes, 1)) : nullptr;
}

bool deallocate_shared(const std::shared_ptr<node::SharedHeap>& heap, void* block,
                       std::size_t bytes) noexcept {
  if (!heap || !heap->contains(block)) return false;
  heap->deallocate(block, std::max<std::size_t>(bytes, 1));
  return true;
}

}  // namespace kolo::detail
