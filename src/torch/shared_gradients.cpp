// SPDX-License-Identifier: Apache-2.0
#include "kolo/torch/shared_gradients.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kolo/shared_memory.hpp"

namespace kolo {
namespace internal {
namespace {

// Shared blocks are whole pages, so smaller tensors would waste most of theirs.
constexpr std::size_t min_bytes = 4096;

std::set<std::size_t> sizes_of(const ::torch::nn::Module& module) {
  std::set<std::size_t> sizes;
  for (const ::torch::Tensor& parameter : module.parameters())
    if (parameter.defined() && parameter.device().is_cpu() && parameter.nbytes() >= min_bytes)
      sizes.insert(parameter.nbytes());
  return sizes;
}

}  // namespace

/// Blocks of some sizes in shared memory. What is freed is kept for the next tensor of its size,
/// because new pages are slow. Thread-safe. Lives as long as its blocks.
class SharedBlocks {
 public:
  SharedBlocks(std::shared_ptr<node::SharedHeap> heap, const std::set<std::size_t>& sizes)
      : heap_(std::move(heap)) {
    for (const std::size_t size : sizes) free_[size];
  }
  SharedBlocks(const SharedBlocks&) = delete;
  SharedBlocks& operator=(const SharedBlocks&) = delete;
  ~SharedBlocks() { drop_free(); }

  /// Null for another size. Throws BackendError if the host lacks memory.
  [[nodiscard]] void* take(std::size_t bytes) {
    const auto free = free_.find(bytes);  // only its lists change
    if (free == free_.end()) return nullptr;
    const std::lock_guard lock(mutex_);
    if (is_closed_ || heap_ == nullptr) return nullptr;
    if (free->second.empty()) {
      void* const block = detail::allocate_shared(heap_, bytes);
      bytes_ += bytes;
      return block;
    }
    void* const block = free->second.back();
    free->second.pop_back();
    return block;
  }

  void give_back(void* block, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return drop(block, bytes);
    free_.at(bytes).push_back(block);
  }

  /// From now on nothing is taken, and nothing is kept.
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    drop_free();
  }

  [[nodiscard]] std::size_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  void drop(void* block, std::size_t bytes) noexcept {
    bytes_ -= bytes;
    if (!detail::deallocate_shared(heap_, block, bytes))
      ::operator delete(block, std::align_val_t(64));  // ordinary memory
  }
  void drop_free() noexcept {
    for (auto& [size, blocks] : free_) {
      for (void* const block : blocks) drop(block, size);
      blocks.clear();
    }
  }

  std::shared_ptr<node::SharedHeap> heap_;
  std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<void*>> free_;
  std::size_t bytes_ = 0;
  bool is_closed_ = false;
};

namespace {

/// LibTorch's allocator for the CPU, once a module's gradients are shared. Asks each module's
/// blocks, then the allocator that was there before.
// LibTorch 1.13 declares `allocate` const and has no `copy_data`, so nothing here says `override`.
// NOLINTBEGIN(modernize-use-override)
class SharingAllocator final : public c10::Allocator {
 public:
  explicit SharingAllocator(c10::Allocator& before) : before_(before) {}

  c10::DataPtr allocate(std::size_t bytes) { return find(bytes); }
  c10::DataPtr allocate(std::size_t bytes) const { return find(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const {
    std::memcpy(to, from, bytes);
  }
  /// Some of LibTorch's operations keep only the address of what was allocated.
  c10::DeleterFnPtr raw_deleter() const { return &free_either; }

  void add(std::shared_ptr<SharedBlocks> blocks) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(blocks));
  }
  void remove(const std::shared_ptr<SharedBlocks>& blocks) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, blocks);
  }

  static SharingAllocator& installed();

 private:
  struct Use {
    std::shared_ptr<SharedBlocks> owner;
    std::size_t bytes;
  };

  c10::DataPtr find(std::size_t bytes) const {
    if (bytes >= min_bytes) {
      const std::lock_guard lock(mutex_);
      for (const auto& blocks : all_) {
        void* const block = blocks->take(bytes);
        if (block == nullptr) continue;
        in_use_.emplace(block, Use{blocks, bytes});
        return {block, block, &free_either, c10::Device(c10::DeviceType::CPU)};
      }
    }
    return before_.allocate(bytes);
  }

  static void free_either(void* block) {
    SharingAllocator& self = installed();
    Use use{};
    {
      const std::lock_guard lock(self.mutex_);
      if (auto found = self.in_use_.extract(block)) use = std::move(found.mapped());
    }
    if (use.owner != nullptr) return use.owner->give_back(block, use.bytes);
    self.before_.raw_deallocate(block);
  }

  c10::Allocator& before_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<SharedBlocks>> all_{};
  mutable std::unordered_map<void*, Use> in_use_{};
};
// NOLINTEND(modernize-use-override)

// Never destroyed, nor removed: tensors refer to the allocator that they are from.
SharingAllocator& SharingAllocator::installed() {
  static SharingAllocator& allocator = [&]() -> SharingAllocator& {
    auto& made = *new SharingAllocator(*c10::GetCPUAllocator());
    c10::SetCPUAllocator(&made, /*priority=*/1);
    return made;
  }();
  return allocator;
}

}  // namespace
}  // namespace internal

using namespace internal;

SharedGradients::SharedGradients(const ::torch::nn::Module& module)
    : blocks_(std::make_shared<SharedBlocks>(detail::shared_heap(), sizes_of(module))) {
  SharingAllocator::installed().add(blocks_);
}

SharedGradients::~SharedGradients() {
  SharingAllocator::installed().remove(blocks_);
  blocks_->close();
}

std::size_t SharedGradients::bytes() const { return blocks_->bytes(); }

}  // namespace kolo
