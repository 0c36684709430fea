// SPDX-License-Identifier: Apache-2.0
// The whole parameters of a unit, which come and go.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kolo/process_set.hpp"
#include "training/sharded/unit_memory.hpp"

namespace kolo::internal {

/// Gathers the shards of one unit and frees the whole parameters. Not thread-safe.
class WholeUnit {
 public:
  /// `memory` must outlive this object. `subject` begins messages.
  WholeUnit(UnitMemory& memory, ProcessSet set, std::string subject);
  WholeUnit(WholeUnit&&) noexcept;
  WholeUnit& operator=(WholeUnit&&) noexcept;
  ~WholeUnit();

  /// Starts a gather, unless the parameters are there, or coming, as the shards are now. Returns
  /// whether it has.
  bool start(const std::string& operation);
  /// Waits for the gather, if one is pending. Returns false if that took no time. Throws Mismatch
  /// if a rank has joined.
  bool finish();
  /// Waits for a pending gather, which still writes to the memory, and ignores its error.
  void free() noexcept;

 private:
  struct Gather;

  UnitMemory* memory_;
  ProcessSet set_;
  std::string subject_;
  bool is_allocated_ = false;
  bool is_whole_ = false;
  std::int64_t version_ = 0;  // of the shards that were gathered last
  std::unique_ptr<Gather> gather_{};
};

}  // namespace kolo::internal
