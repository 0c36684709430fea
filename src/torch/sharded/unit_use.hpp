// SPDX-License-Identifier: Apache-2.0
// A use of a unit in forward.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "torch/sharded/sharded_unit.hpp"

namespace kolo::internal {

/// A use of a unit in forward.
class UnitUse {
 public:
  explicit UnitUse(const std::shared_ptr<ShardedUnit>& unit);
  ~UnitUse();
  UnitUse(const UnitUse&) = delete;
  UnitUse& operator=(const UnitUse&) = delete;
  void add_result(const ::torch::Tensor& tensor);
  /// Ends the use. Without it, the destructor does, since forward has thrown.
  void end();

 private:
  std::shared_ptr<ShardedUnit> unit_;
  std::shared_ptr<UnitListener> listener_;
  std::size_t stamp_ = 0;
  std::uint64_t first_node_;  // autograd numbers the nodes of this use from here
  std::uint64_t checkpointed_before_;
  /// Whether backward has come to this use; null before the first result.
  std::shared_ptr<bool> is_reached_{};
  bool has_ended_ = false;
};

}  // namespace kolo::internal
