// SPDX-License-Identifier: Apache-2.0
// The first error of several actions.
#pragma once

#include <exception>
#include <utility>

namespace kolo::internal {

/// Keeps the first error of several actions, so that the later ones still run. Not thread-safe.
class FirstError {
 public:
  /// Returns true unless the action has thrown.
  template <typename Action>
  bool attempt(const Action& action) noexcept {
    try {
      action();
      return true;
    } catch (...) {
      note(std::current_exception());
      return false;
    }
  }
  void note(std::exception_ptr error) noexcept {
    if (!error_) error_ = std::move(error);
  }
  void replace(std::exception_ptr error) noexcept { error_ = std::move(error); }
  void clear() noexcept { error_ = nullptr; }

  explicit operator bool() const noexcept { return error_ != nullptr; }
  /// Returns the error and forgets it; null without an error.
  [[nodiscard]] std::exception_ptr take() noexcept { return std::exchange(error_, nullptr); }
  /// Throws the error and forgets it. Does nothing without an error.
  void rethrow() {
    if (error_) std::rethrow_exception(take());
  }

 private:
  std::exception_ptr error_{};
};

}  // namespace kolo::internal
