// Memory for tensors that the other ranks of the host read where it lies, without a copy.
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

/// Of the session. Null without shared memory. Throws NotInitialized.
[[nodiscard]] KOLO_EXPORT std::shared_ptr<internal::node::SharedHeap> shared_heap();
/// Null if there is no room, or no heap.
[[nodiscard]] KOLO_EXPORT void* allocate_shared(
    const std::shared_ptr<internal::node::SharedHeap>& heap, std::size_t bytes);
/// False if it is not of the heap.
KOLO_EXPORT bool deallocate_shared(const std::shared_ptr<internal::node::SharedHeap>& heap,
                                   void* block, std::size_t bytes) noexcept;

}  // namespace detail

/// An allocator for containers of gradients, say: `std::vector<float, SharedAllocator<float>>`, for
/// short `SharedVector<float>`. An allreduce of such memory, in place or into such memory, copies
/// nothing into a buffer first: the ranks of a host read each other's tensors. It ends only when
/// all of them have read this rank's.
///
/// Blocks are whole pages and stay what they are after the session's end. Where ranks cannot share
/// memory, and where there is no room, it is ordinary memory: the results are the same. Made during
/// a session (else NotInitialized); thread-safe.
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

template <typename T>
using SharedVector = std::vector<T, SharedAllocator<T>>;

}  // namespace kolo
