// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/sharded/unit_use.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <utility>

#include "kolo/error.hpp"
#include "torch/checkpointed_calls.hpp"

namespace kolo::internal {

UnitUse::UnitUse(const std::shared_ptr<ShardedUnit>& unit)
    : unit_(unit),
      listener_(unit->listener()),
      first_node_(at::sequence_number::peek()),
      checkpointed_before_(checkpointed_calls()) {
  if (!listener_)
    throw InvalidArgument(
        "FullySharded: the module's parameters are in shards, and no FullySharded gathers them. "
        "Construct one, and let it outlive the calls of forward");
  listener_->enter(*unit_, at::GradMode::is_enabled());
}

UnitUse::~UnitUse() {
  if (!has_ended_) listener_->leave(*unit_, /*threw=*/true);
}

void UnitUse::end() {
  has_ended_ = true;
  listener_->leave(*unit_, /*threw=*/false);
}

// An input that forward returns belongs to the unit that has computed it. Autograd numbers the
// nodes of each thread by themselves.
void UnitUse::add_result(const ::torch::Tensor& tensor) {
  if (unit_->has_memory_of(tensor))
    throw InvalidArgument(
        "FullySharded: the forward of a unit returns one of its parameters, which has no memory "
        "outside of the unit. Return a clone()");
  const auto& node = tensor.grad_fn();
  if (!at::GradMode::is_enabled() || node == nullptr || node->sequence_nr() == UINT64_MAX) return;
  const bool is_of_this_thread = node->thread_id() == at::RecordFunction::currentThreadId();
  if (is_of_this_thread && node->sequence_nr() < first_node_) return;
  if (is_reached_ == nullptr) {
    is_reached_ = std::make_shared<bool>(false);
    stamp_ = unit_->stamp();  // now: one rank keeps what forward has written to its parameters
    listener_->note_recorded(*unit_, checkpointed_calls() != checkpointed_before_);
  }
  tensor.register_hook([unit = std::weak_ptr(unit_), stamp = stamp_,
                        is_reached = is_reached_](const at::TensorBase&) {
    const std::shared_ptr<ShardedUnit> alive = unit.lock();
    const std::shared_ptr<UnitListener> listener = alive ? alive->listener() : nullptr;
    if (listener) listener->enter_backward(*alive, stamp, !std::exchange(*is_reached, true));
  });
}

}  // namespace kolo::internal
