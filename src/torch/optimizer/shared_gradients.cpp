// SPDX-License-Identifier: Apache-2.0
#include "kolo/torch/gradients.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <torch/csrc/autograd/graph_task.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/shared_memory.hpp"

namespace kolo {
namespace internal {
namespace {

// Shared blocks are whole pages, so smaller tensors would waste most of theirs.
constexpr std::size_t min_bytes = 4096;

std::set<std::size_t> sizes_of(const NamedParameters& parameters) {
  std::set<std::size_t> sizes;
  for (const auto& [name, parameter] : parameters)
    if (parameter.defined() && parameter.device().is_cpu() && parameter.layout() == at::kStrided &&
        parameter.nbytes() >= min_bytes)
      sizes.insert(parameter.nbytes());
  return sizes;
}

}  // namespace

/// Blocks of shared memory in the sizes of a module's gradients. A freed block is kept for the next
/// tensor of its size, because new pages are slow. Lives as long as its blocks. The allocator holds
/// its lock while it calls any function but `allocate` and `drop`.
class SharedBlocks {
 public:
  SharedBlocks(std::shared_ptr<node::SharedHeap> heap, const std::set<std::size_t>& sizes)
      : heap_(std::move(heap)) {
    if (heap_ == nullptr) return;
    for (const std::size_t size : sizes) free_[size];
  }

  [[nodiscard]] bool serves(std::size_t bytes) const { return free_.contains(bytes); }
  /// Null if no block is free.
  [[nodiscard]] void* take(std::size_t bytes) {
    std::vector<void*>& free = free_.at(bytes);
    if (free.empty()) return nullptr;
    void* const block = free.back();
    free.pop_back();
    return block;
  }
  /// Keeps a freed block. Returns false if blocks of this size are not kept.
  [[nodiscard]] bool keep(void* block, std::size_t bytes) {
    const auto free = free_.find(bytes);
    if (free == free_.end()) return false;
    free->second.push_back(block);
    return true;
  }
  /// Serves and keeps no more blocks. Returns the kept blocks.
  [[nodiscard]] std::unordered_map<std::size_t, std::vector<void*>> close() {
    return std::exchange(free_, {});
  }

  /// Returns a new block: ordinary memory if the heap is full, null if the host lacks memory.
  [[nodiscard]] void* allocate(std::size_t bytes) const {
    try {
      return detail::allocate_shared(heap_, bytes);
    } catch (const BackendError&) {
      return nullptr;
    }
  }
  void drop(void* block, std::size_t bytes) const noexcept {
    if (!detail::deallocate_shared(heap_, block, bytes))
      ::operator delete(block, std::align_val_t(64));
  }

  std::size_t held = 0;  // bytes in use or kept

 private:
  std::shared_ptr<node::SharedHeap> heap_;
  std::unordered_map<std::size_t, std::vector<void*>> free_{};
};

namespace {

/// True on a thread that runs a backward pass. Elsewhere there are no new gradients.
bool is_in_backward() { return ::torch::autograd::get_current_graph_task_exec_info() != nullptr; }

/// The allocator of LibTorch for CPU memory, once a module's gradients are shared. Asks the blocks
/// of each module, then the allocator that was there before.
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
  /// The deleter for operations of LibTorch that keep only the address of a block.
  c10::DeleterFnPtr raw_deleter() const { return &free_either; }

  void add(std::shared_ptr<SharedBlocks> blocks) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(blocks));
  }
  void remove(const std::shared_ptr<SharedBlocks>& blocks) {
    std::unique_lock lock(mutex_);
    std::erase(all_, blocks);
    const auto kept = blocks->close();
    for (const auto& [bytes, free] : kept) blocks->held -= bytes * free.size();
    lock.unlock();
    for (const auto& [bytes, free] : kept)
      for (void* const block : free) blocks->drop(block, bytes);
  }
  [[nodiscard]] std::size_t bytes_of(const SharedBlocks& blocks) const {
    const std::lock_guard lock(mutex_);
    return blocks.held;
  }

  /// Installs the allocator on the first call. Throws InvalidArgument if the program has set an
  /// allocator that cannot be replaced.
  static SharingAllocator& installed();

 private:
  struct Use {
    std::shared_ptr<SharedBlocks> owner{};
    std::size_t bytes = 0;
  };

  c10::DataPtr find(std::size_t bytes) const {
    void* const block = bytes >= min_bytes && is_in_backward() ? find_shared(bytes) : nullptr;
    if (block == nullptr) return before_.allocate(bytes);
    return {block, block, &free_either, c10::Device(c10::DeviceType::CPU)};
  }

  [[nodiscard]] void* find_shared(std::size_t bytes) const {
    std::unique_lock lock(mutex_);
    // The newest blocks are asked first: older ones may belong to an earlier session.
    for (std::size_t i = all_.size(); i-- > 0;) {
      if (!all_[i]->serves(bytes)) continue;
      const std::shared_ptr<SharedBlocks> blocks = all_[i];
      void* block = blocks->take(bytes);
      if (block == nullptr) {
        lock.unlock();  // new memory may take long
        block = blocks->allocate(bytes);
        if (block == nullptr) return nullptr;
        lock.lock();
        blocks->held += bytes;
      }
      in_use_[block] = Use{blocks, bytes};
      return block;
    }
    return nullptr;
  }

  static void free_either(void* block) {
    SharingAllocator& self = installed();
    Use use{};
    {
      const std::lock_guard lock(self.mutex_);
      if (auto found = self.in_use_.extract(block)) {
        use = std::move(found.mapped());
        if (use.owner->keep(block, use.bytes)) return;
        use.owner->held -= use.bytes;
      }
    }
    if (use.owner == nullptr) return self.before_.raw_deallocate(block);
    use.owner->drop(block, use.bytes);
  }

  c10::Allocator& before_;
  mutable std::mutex mutex_;  // guards the members below and all blocks; held while forking
  std::vector<std::shared_ptr<SharedBlocks>> all_{};
  mutable std::unordered_map<void*, Use> in_use_{};
};
// NOLINTEND(modernize-use-override)

// The allocator is never destroyed or removed, because tensors free their memory through it.
SharingAllocator& SharingAllocator::installed() {
  static SharingAllocator& allocator = []() -> SharingAllocator& {
    auto made = std::make_unique<SharingAllocator>(*c10::GetCPUAllocator());
    c10::SetCPUAllocator(made.get(), /*priority=*/1);
    if (c10::GetCPUAllocator() != made.get())
      throw InvalidArgument(
          "SharedGradients: the program has set an allocator for LibTorch's CPU tensors that "
          "cannot be replaced");
    // A fork while another thread holds the mutex would leave it locked in the child forever.
    ::pthread_atfork([] { installed().mutex_.lock(); }, [] { installed().mutex_.unlock(); },
                     [] { installed().mutex_.unlock(); });
    return *made.release();
  }();
  return allocator;
}

}  // namespace
}  // namespace internal

using namespace internal;

SharedGradients::SharedGradients(const NamedParameters& parameters)
    : blocks_(std::make_shared<SharedBlocks>(detail::shared_heap(), sizes_of(parameters))) {
  SharingAllocator::installed().add(blocks_);
}

SharedGradients::~SharedGradients() { SharingAllocator::installed().remove(blocks_); }

std::size_t SharedGradients::bytes() const {
  return SharingAllocator::installed().bytes_of(*blocks_);
}

}  // namespace kolo
