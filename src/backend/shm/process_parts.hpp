// SPDX-License-Identifier: Apache-2.0
// Parts of a piece that lie in the private memory of other processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/shm/arena.hpp"

namespace kolo::internal::backend::shm {

/// Reads and writes the same range of the parts of several ranks. Ranges are in bytes of the piece.
class ProcessParts {
 public:
  explicit ProcessParts(Arena& arena) : arena_(arena) {}

  void clear() { parts_.clear(); }
  /// Of the rank with this index in the batch.
  void add(int index, const node::OtherProcess& process, const Deposit& deposit) {
    parts_.push_back({static_cast<std::size_t>(index), &process, deposit});
  }

  /// So many bytes of each part can be read at once; `all` if there are no parts.
  [[nodiscard]] std::int64_t max_bytes(std::int64_t all) const;
  /// Sets the inputs of these ranks to memory that has what was read, until the next call. False if
  /// a process has ended.
  [[nodiscard]] bool read(std::int64_t begin, std::int64_t bytes,
                          std::vector<const std::byte*>& inputs) const;
  /// The same results to all of them. False if a process has ended.
  [[nodiscard]] bool write(std::int64_t begin, std::int64_t bytes, const std::byte* results) const;
  /// For the amount of work.
  [[nodiscard]] std::int64_t count() const { return std::ssize(parts_); }

 private:
  struct Part {
    std::size_t index;
    const node::OtherProcess* process;
    Deposit deposit;
  };

  Arena& arena_;
  std::vector<Part> parts_{};
};

}  // namespace kolo::internal::backend::shm
