// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/sharded/unit_node.hpp"

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

namespace autograd = ::torch::autograd;

class UnitNode final : public autograd::Node {
 public:
  explicit UnitNode(std::weak_ptr<ShardedUnit> unit)
      : autograd::Node(UINT64_MAX), unit_(std::move(unit)) {}

  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    const std::shared_ptr<ShardedUnit> unit = unit_.lock();
    const std::shared_ptr<UnitListener> listener = unit ? unit->listener() : nullptr;
    if (at::GradMode::is_enabled())
      throw InvalidArgument(
          "FullySharded: backward() with create_graph, but reduced gradients cannot be "
          "differentiated. Call torch::autograd::grad for that, which reduces nothing, and "
          "backward() for the loss");
    if (listener) listener->gradients_complete(*unit, std::move(gradients));
    return {};
  }
  [[nodiscard]] std::string name() const override { return "kolo::UnitNode"; }

 private:
  std::weak_ptr<ShardedUnit> unit_;
};

// LibTorch before 2.15 keeps nodes in shared pointers.
template <typename Pointer>
Pointer make(const std::weak_ptr<ShardedUnit>& unit) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<autograd::Node>>) {
    return std::make_shared<UnitNode>(unit);
  } else {
    return Pointer(c10::make_intrusive<UnitNode>(unit));
  }
}

}  // namespace

ShardedUnit::NodePointer make_unit_node(const std::weak_ptr<ShardedUnit>& unit) {
  return make<ShardedUnit::NodePointer>(unit);
}

}  // namespace kolo::internal
