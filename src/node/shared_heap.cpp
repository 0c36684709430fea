#include "node/shared_heap.hpp"

#include <functional>
#include <iterator>

namespace kolo::node {
namespace {

constexpr std::size_t page = 4096;

std::size_t pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

}  // namespace

SharedHeap::SharedHeap(std::size_t bytes) : memory_(SharedMemory::create_sparse(pages(bytes))) {
  free_.emplace(0, memory_.size());
}

void* SharedHeap::allocate(std::size_t bytes) {
  const std::size_t wanted = pages(bytes);
  const std::lock_guard lock(mutex_);
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const auto [offset, size] = *block;
    if (size < wanted) continue;
    if (!memory_.reserve(offset, wanted)) return nullptr;
    free_.erase(block);
    if (size > wanted) free_.emplace(offset + wanted, size - wanted);
    return memory_.data() + offset;
  }
  return nullptr;
}

void SharedHeap::deallocate(void* block, std::size_t bytes) noexcept {
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(block) - memory_.data());
  const std::size_t size = pages(bytes);
  const std::lock_guard lock(mutex_);
  memory_.give_back(offset, size);
  auto freed = free_.emplace(offset, size).first;
  const auto after = std::next(freed);
  if (after != free_.end() && freed->first + freed->second == after->first) {
    freed->second += after->second;
    free_.erase(after);
  }
  if (freed == free_.begin()) return;
  const auto before = std::prev(freed);
  if (before->first + before->second == freed->first) {
    before->second += freed->second;
    free_.erase(freed);
  }
}

bool SharedHeap::contains(const void* place) const {
  const std::less_equal<> not_after;
  const std::less<> before;
  return not_after(static_cast<const void*>(memory_.data()), place) &&
         before(place, static_cast<const void*>(memory_.data() + memory_.size()));
}

}  // namespace kolo::node
