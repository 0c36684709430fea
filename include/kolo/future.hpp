// SPDX-License-Identifier: Apache-2.0
// The result of an asynchronous operation.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <utility>

#include "kolo/export.hpp"

namespace kolo {

namespace detail {

class Operation;  // one submitted operation, shared by the session and the future

/// The part of every future that does not depend on its value. Move-only. Use a future from one
/// thread at a time.
class FutureBase {
 public:
  FutureBase() noexcept = default;
  KOLO_EXPORT explicit FutureBase(std::shared_ptr<Operation> operation) noexcept;
  KOLO_EXPORT FutureBase(FutureBase&& other) noexcept;
  KOLO_EXPORT FutureBase& operator=(FutureBase&& other) noexcept;
  FutureBase(const FutureBase&) = delete;
  FutureBase& operator=(const FutureBase&) = delete;

  /// False for a default-constructed future, a moved-from one, and one whose value was taken.
  [[nodiscard]] bool valid() const noexcept { return operation_ != nullptr; }

  /// Blocks until the operation is done. If it failed, every call throws the operation's error.
  /// While waiting, the calling thread does the session's work. Throws InvalidArgument if the
  /// future is not valid.
  ///
  /// An operation on GPU tensors is done once it is queued on the GPU; the current stream, and the
  /// stream of the submission if it is LibTorch's, then wait there for the results. See
  /// `CudaStreamScope`, `synchronize` and the setting `gpu_blocking_wait`.
  KOLO_EXPORT void wait();

  /// Blocks like `wait`, and then until the GPU has computed the results. Also throws an error that
  /// occurred on the GPU.
  KOLO_EXPORT void synchronize();

  /// Blocks like `wait`, but at most for `timeout`. Returns true if the operation is done.
  KOLO_EXPORT bool wait_for(std::chrono::duration<double> timeout);

  /// True once `wait` would not block. Never throws the operation's error. Throws InvalidArgument
  /// if the future is not valid.
  [[nodiscard]] KOLO_EXPORT bool ready() const;

  /// Blocks until at least one of the futures is ready; returns at once if there are none. Waits as
  /// `wait` does, but never throws an operation's error. All futures must be valid and of one
  /// session.
  KOLO_EXPORT static void wait_for_any(std::span<const FutureBase* const> futures);

  /// True once `synchronize` would not block: the operation no longer uses its memory, on the GPU
  /// either. Throws as `ready`.
  [[nodiscard]] KOLO_EXPORT bool finished() const;

 protected:
  KOLO_EXPORT ~FutureBase();

  /// Waits until the operation no longer uses its memory. Ignores the operation's error. Returns
  /// false in an allocator, where it cannot wait: a pending operation continues to use its memory.
  KOLO_EXPORT bool abandon() noexcept;

  std::shared_ptr<Operation> operation_;
  bool in_order_ = false;  // streams wait for the results
  // The number of uncaught exceptions at construction. A larger number in the destructor means that
  // the stack is being unwound.
  int exceptions_at_start_ = 0;
};

}  // namespace detail

/// The result, of type `T`, of an asynchronous operation.
///
/// The destructor waits until a pending operation no longer uses its memory. If an exception
/// unwinds the stack, or the process exits, it waits for 10 s, or for `stall_warning` if shorter.
/// If the operation is still pending, THIS RANK LEAVES THE SESSION, because the ranks that it waits
/// for may be waiting for this rank: all other ranks get PeerLeft. To stay in the session after an
/// exception, catch the exception inside the scope that holds the futures.
///
/// In an allocator the destructor cannot wait. It logs a warning, and the operation continues: its
/// tensors must stay alive until it is done.
template <typename T>
class [[nodiscard]] Future : public detail::FutureBase {
 public:
  Future() noexcept = default;
  Future(std::shared_ptr<detail::Operation> operation, std::unique_ptr<T> value) noexcept
      : FutureBase(std::move(operation)), value_(std::move(value)) {}
  Future(Future&&) noexcept = default;
  Future& operator=(Future&& other) noexcept {
    // Before anything else, because a pending operation of this future uses value_.
    if (this != &other && !abandon()) static_cast<void>(value_.release());
    FutureBase::operator=(std::move(other));
    value_ = std::move(other.value_);
    return *this;
  }
  ~Future() {
    if (!abandon()) static_cast<void>(value_.release());
  }

  /// Waits, then returns the value or throws the operation's error. The future is invalid once it
  /// has returned the value.
  [[nodiscard]] T get() {
    wait();
    operation_.reset();
    const std::unique_ptr<T> value = std::move(value_);
    return std::move(*value);
  }

 private:
  std::unique_ptr<T> value_;
};

/// The completion of an asynchronous operation that has no value. Its destructor behaves like that
/// of `Future<T>`.
template <>
class [[nodiscard]] Future<void> : public detail::FutureBase {
 public:
  using FutureBase::FutureBase;

  /// Waits, and throws the operation's error if it failed. On success the future becomes invalid.
  void get() {
    wait();
    operation_.reset();
  }
};

}  // namespace kolo
