// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "kolo/torch/sharded_module.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/torch/fully_sharded.hpp"
#include "torch/sharded/fully_sharded_state.hpp"
#include "torch/sharded/unit_use.hpp"

namespace kolo {

using namespace internal;

namespace {

// The positions for the modules that this thread constructs.
std::optional<ShardPosition>& constructing() {
  thread_local std::optional<ShardPosition> position;
  return position;
}

}  // namespace

ConstructSharded::ConstructSharded(const ProcessSet& set) {
  if (constructing())
    throw InvalidArgument("ConstructSharded: there is one on this thread already");
  constructing() = ShardPosition::of_member(set, "ConstructSharded");
}

ConstructSharded::~ConstructSharded() { constructing().reset(); }

namespace detail {

ShardedModule::ShardedModule() noexcept = default;
ShardedModule::~ShardedModule() = default;
// A copy of a module has parameters of its own, which nobody has divided.
ShardedModule::ShardedModule(const ShardedModule& /*other*/) noexcept {}
// NOLINTNEXTLINE(bugprone-unhandled-self-assignment): it assigns nothing.
ShardedModule& ShardedModule::operator=(const ShardedModule& /*other*/) noexcept { return *this; }

// Inner units are constructed first, and have divided their parameters.
void ShardedModule::constructed(::torch::nn::Module& module) {
  if (!constructing()) return;
  std::vector<ShardedUnit::Parameter> own;
  std::vector<const c10::TensorImpl*> divided;
  for (const auto& child : module.modules(/*include_self=*/false))
    if (const auto* inner = dynamic_cast<const ShardedModule*>(child.get());
        inner != nullptr && inner->unit_)
      for (std::size_t i = 0; i < inner->unit_->size(); ++i)
        divided.push_back(inner->unit_->whole(i).unsafeGetTensorImpl());
  for (const auto& item : module.named_parameters()) {
    const auto* const tensor = item.value().unsafeGetTensorImpl();
    if (std::ranges::find(divided, tensor) != divided.end()) continue;
    divided.push_back(tensor);
    own.push_back({item.key(), item.value()});
  }
  unit_ = std::make_shared<ShardedUnit>(std::move(own), *constructing());
}

void ShardedModule::zero_gradients(bool set_to_none) {
  if (unit_) unit_->zero_gradients(set_to_none);
}

void ShardedModule::require_undivided(const char* function) const {
  if (unit_)
    throw InvalidArgument(std::string("FullySharded: ") + function +
                          "() of a module whose parameters are divided among the ranks. Use "
                          "load_full_state() or load_sharded_state()");
}

void ShardedModule::require_whole(const char* function) const {
  if (unit_ && unit_->is_freed())
    throw InvalidArgument(std::string("FullySharded: ") + function +
                          "() of a module whose parameters are freed here. Use full_state() or "
                          "state_view(), or hold gather()");
}

ShardedModule::Call::Call(const ShardedModule& module)
    : use_(module.unit_ ? std::make_unique<UnitUse>(module.unit_) : nullptr) {}
ShardedModule::Call::~Call() = default;
void ShardedModule::Call::add_result(const ::torch::Tensor& tensor) {
  if (use_) use_->add_result(tensor);
}
void ShardedModule::Call::end() {
  if (use_) use_->end();
}

}  // namespace detail

}  // namespace kolo
