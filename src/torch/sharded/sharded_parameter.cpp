// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/sharded/sharded_parameter.hpp"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "kolo/error.hpp"
#include "torch/freed_parameter.hpp"
#include "torch/optimizer/parameter_shards.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::internal {

using ::torch::Tensor;

namespace {

void require_divisible(const Tensor& whole, const std::string& name) {
  if (is_freed_parameter(whole))
    throw InvalidArgument(
        "FullySharded: '" + name +
            "' is shared with another unit, and ConstructSharded has divided it there: construct "
            "the model without it",
        name);
  require_supported(whole, name);
  if (!whole.is_floating_point())
    throw InvalidArgument("FullySharded: '" + name + "' is " + describe(whole) +
                              ", but only floating-point parameters can be sharded; make it a "
                              "buffer",
                          name);
  if (!whole.is_non_overlapping_and_dense())
    throw InvalidArgument("FullySharded: '" + name + "': " + describe(whole) +
                              " is not dense in memory; make it contiguous",
                          name);
  if (!whole.is_leaf())
    throw InvalidArgument("FullySharded: '" + name +
                              "' is no leaf of the autograd graph: another "
                              "FullySharded has it, or an operation has computed it",
                          name);
}

}  // namespace

ShardedParameter::ShardedParameter(std::string parameter_name, const Tensor& tensor,
                                   ShardPosition position)
    : name(std::move(parameter_name)),
      whole(tensor),
      sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      no_strides(strides.size()),
      elements(tensor.numel()),
      trains(tensor.requires_grad()) {
  const at::NoGradGuard no_grad;
  require_divisible(whole, name);
  shard = elements_in_memory(whole)
              .narrow(0, position.begin(elements), position.size(elements))
              .clone();
  shard.set_requires_grad(trains);
  freed = make_freed_element(whole.options());
  hide();
}

void ShardedParameter::hide() noexcept {
  c10::TensorImpl& tensor = *whole.unsafeGetTensorImpl();
  tensor.set_storage_keep_dtype(freed.storage());
  tensor.set_sizes_and_strides(sizes, no_strides, 0);
}

void ShardedParameter::show(const c10::Storage& storage) {
  c10::TensorImpl& tensor = *whole.unsafeGetTensorImpl();
  tensor.set_storage_keep_dtype(storage);
  tensor.set_sizes_and_strides(sizes, strides,
                               offset / static_cast<std::int64_t>(tensor.itemsize()));
}

void ShardedParameter::require_own() const {
  if (!whole.is_alias_of(freed))
    throw InvalidArgument("FullySharded: '" + name +
                              "' was given other memory, as by to() or set_data(). Convert, move "
                              "and load a model before it is sharded, or use load_full_state()",
                          name);
  if (!is_untouched(freed))
    throw InvalidArgument(
        "FullySharded: '" + name +
            "' was written to while it had no memory, so that the write is lost. "
            "Initialize a parameter in the constructor of its own unit, or before "
            "the model is sharded, or use load_full_state()",
        name);
}

void ShardedParameter::add_gradient(Tensor&& added) {
  is_used = true;
  added = added.variable_data();  // not detach(): a view would keep its base
  if (added.layout() != at::kStrided) added = added.to_dense();
  gradient = gradient.defined() ? gradient.to(shard.scalar_type()) + added : std::move(added);
}

Tensor ShardedParameter::take_gradient() {
  const auto options = shard.options().requires_grad(false);
  Tensor sum = std::exchange(gradient, Tensor());
  if (!sum.defined()) return at::zeros({elements}, options);
  const bool is_whole = shard.numel() == elements;
  const bool has_own_memory =
      sum.storage().use_count() == 1 && sum.storage().nbytes() == sum.nbytes();
  if (sum.scalar_type() != shard.scalar_type() || sum.strides() != at::IntArrayRef(strides) ||
      (is_whole && !has_own_memory)) {
    const Tensor ordered = at::empty_strided(sizes, strides, options);
    ordered.copy_(sum);
    sum = ordered;
  }
  return elements_in_memory(sum).variable_data();  // no view: optimizers detach gradients in place
}

}  // namespace kolo::internal
