// SPDX-License-Identifier: Apache-2.0
// Resources that a forked child must not share with its parent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace kolo::internal::node {

/// While this object lives, a child forked from this process loses the named resources. Otherwise,
/// a child that outlives its parent would keep the parent's connections open, so that no rank
/// notices the parent's end; and a child that cleans up would change memory that the job still
/// uses. Processes that call `exec` lose the resources anyway.
class NotInherited {
 public:
  /// The contents of the memory in the child. The child can write to the memory; no other process
  /// sees these writes.
  enum class InChild : std::uint8_t {
    zeros,
    content,  // the parent's content, also later changes, until the child writes to the page
  };

  NotInherited() = default;
  /// In the child, an eventfd takes the place of `fd`, so that closing that number is harmless.
  explicit NotInherited(int fd);
  /// `memory` maps `fd`; the child loses both. If `fd` is -1, the descriptor is closed already.
  NotInherited(int fd, std::span<std::byte> memory, InChild in_child);

  /// True in a child that has lost the resources.
  [[nodiscard]] bool lost() const;

 private:
  struct Entry;
  struct Forget {
    void operator()(Entry* entry) const;
  };

  std::unique_ptr<Entry, Forget> entry_{};
};

}  // namespace kolo::internal::node
