// SPDX-License-Identifier: Apache-2.0
// What a forked child must not share with its parent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace kolo::internal::node {

/// While it lives, a child that is forked from this process loses what it names. Otherwise a child
/// that outlives its parent would keep its connections open, so that nobody notices the parent's
/// end, and a child that cleans up would change memory that the job still uses. Processes that
/// call `exec` lose all of it anyway.
class NotInherited {
 public:
  /// What the child finds at these addresses. It can write there; no other process sees its writes.
  enum class InChild : std::uint8_t {
    zeros,
    content,  // what the parent has there then and later, until the child writes to the page
  };

  NotInherited() = default;
  /// In the child the number is that of an event counter, so that closing it hits nothing else.
  explicit NotInherited(int fd);
  /// A mapping of the descriptor; it loses both. -1: the descriptor is closed.
  NotInherited(int fd, std::span<std::byte> memory, InChild in_child);

  /// True in a child that has lost it.
  [[nodiscard]] bool lost() const;

 private:
  struct Entry;
  struct Forget {
    void operator()(Entry* entry) const;
  };

  std::unique_ptr<Entry, Forget> entry_{};
};

}  // namespace kolo::internal::node
