// SPDX-License-Identifier: Apache-2.0
// Runs a function at the end of a scope.
#pragma once

#include <utility>

namespace kolo::internal {

/// Calls `end` when its scope ends, also by an exception. `end` must not throw.
template <typename End>
class [[nodiscard]] Finally {
 public:
  explicit Finally(End end) : end_(std::move(end)) {}
  ~Finally() { end_(); }
  Finally& operator=(Finally&&) = delete;

 private:
  End end_;
};

}  // namespace kolo::internal
