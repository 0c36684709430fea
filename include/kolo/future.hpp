// The result of an asynchronous operation.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "kolo/export.hpp"

namespace kolo {

namespace detail {

class Operation;  // one submitted operation, shared by the session and the future

/// The part of every future that does not depend on its value. Move-only.
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

  /// Blocks until the operation is done and throws its error if it failed, every time it is called.
  /// The waiting thread does the session's work meanwhile. One thread at a time may use a future.
  /// Throws InvalidArgument if the future is not valid.
  KOLO_EXPORT void wait();

  /// As `wait`, but gives up after `timeout` and returns false. True means done (or throws).
  KOLO_EXPORT bool wait_for(std::chrono::duration<double> timeout);

  /// True once `wait` would not block. Never throws the operation's error.
  [[nodiscard]] KOLO_EXPORT bool ready() const;

 protected:
  KOLO_EXPORT ~FutureBase();

  /// Waits until the buffer is no longer touched, swallowing the operation's error.
  KOLO_EXPORT void abandon() noexcept;

  std::shared_ptr<Operation> operation_;
  int exceptions_at_start_ = 0;  // uncaught exceptions when made: more of them means unwinding
};

}  // namespace detail

/// The result of an asynchronous operation that hands back a `T`.
///
/// Destroying a future whose operation is pending waits until its buffer is no longer touched. If
/// that happens while an exception unwinds the stack, this rank FIRST LEAVES THE SESSION, since the
/// ranks it would wait for may be waiting for it: every other rank gets PeerLeft. So catch what you
/// mean to survive inside the scope that holds the futures.
template <typename T>
class [[nodiscard]] Future : public detail::FutureBase {
 public:
  Future() noexcept = default;
  Future(std::shared_ptr<detail::Operation> operation, std::unique_ptr<T> value) noexcept
      : FutureBase(std::move(operation)), value_(std::move(value)) {}
  Future(Future&&) noexcept = default;
  Future& operator=(Future&& other) noexcept {
    FutureBase::operator=(
        std::move(other));  // waits for what is pending here before its buffer goes
    value_ = std::move(other.value_);
    return *this;
  }
  ~Future() { abandon(); }

  /// Waits, throws the operation's error if it failed, else returns the value. Once: afterwards the
  /// future is not valid.
  [[nodiscard]] T get() {
    wait();
    operation_.reset();
    const std::unique_ptr<T> value = std::move(value_);
    return std::move(*value);
  }

 private:
  std::unique_ptr<T> value_;
};

/// The result of an asynchronous operation that works in place. See the primary template.
template <>
class [[nodiscard]] Future<void> : public detail::FutureBase {
 public:
  using FutureBase::FutureBase;

  /// Waits, and throws the operation's error if it failed. Afterwards the future is not valid.
  void get() {
    wait();
    operation_.reset();
  }
};

}  // namespace kolo
