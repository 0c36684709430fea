// SPDX-License-Identifier: Apache-2.0
// Tensor memory that the other ranks of the host read and write in place, without a copy.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

namespace internal::node {
class SharedHeap;
}

namespace detail {

/// The heap of the session; null without shared memory. Throws NotInitialized outside a session.
[[nodiscard]] KOLO_EXPORT std::shared_ptr<internal::node::SharedHeap> shared_heap();
/// Allocates a block of the heap, or ordinary memory if the heap is full. Returns null if `heap` is
/// null.
[[nodiscard]] KOLO_EXPORT void* allocate_shared(
    const std::shared_ptr<internal::node::SharedHeap>& heap, std::size_t bytes);
/// Frees `block`. Returns false, and frees nothing, if `block` is not part of the heap.
KOLO_EXPORT bool deallocate_shared(const std::shared_ptr<internal::node::SharedHeap>& heap,
                                   void* block, std::size_t bytes) noexcept;

}  // namespace detail

/// An allocator for containers whose contents are reduced, such as gradients: `SharedVector<float>`
/// is a `std::vector<float, SharedAllocator<float>>`. An allreduce in place or into such a vector
/// needs no copy: the host's ranks read and write each other's tensors, and the allreduce completes
/// once the other ranks are done with this rank's tensor.
///
/// Blocks are whole pages, and stay valid after the session. If ranks cannot share memory, or the
/// heap is full, blocks are ordinary memory. `allocate` throws BackendError if the host or its
/// control group lacks memory; outside a session the constructor throws NotInitialized.
/// Thread-safe. A forked child sees its parent's memory, including later changes, and zeros once
/// the parent has freed it. A page that the child writes becomes its own copy. If the child needs a
/// snapshot, copy the data before the fork.
template <typename T>
class SharedAllocator {
 public:
  using value_type = T;

  SharedAllocator() : heap_(detail::shared_heap()) {}
  template <typename U>
  SharedAllocator(const SharedAllocator<U>& other)  // NOLINT(google-explicit-constructor)
      : heap_(other.heap()) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    void* block = detail::allocate_shared(heap_, count * sizeof(T));
    if (block == nullptr) block = ::operator new(count * sizeof(T), std::align_val_t(64));
    return static_cast<T*>(block);
  }

  void deallocate(T* block, std::size_t count) noexcept {
    if (!detail::deallocate_shared(heap_, block, count * sizeof(T)))
      ::operator delete(block, std::align_val_t(64));
  }

  [[nodiscard]] const std::shared_ptr<internal::node::SharedHeap>& heap() const noexcept {
    return heap_;
  }

  template <typename U>
  friend bool operator==(const SharedAllocator& a, const SharedAllocator<U>& b) noexcept {
    return a.heap() == b.heap();
  }

 private:
  std::shared_ptr<internal::node::SharedHeap> heap_;
};

/// A vector in memory that the ranks of the host share.
template <typename T>
using SharedVector = std::vector<T, SharedAllocator<T>>;

}  // namespace kolo
