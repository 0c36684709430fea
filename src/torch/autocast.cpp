// SPDX-License-Identifier: Apache-2.0
#include "kolo/torch/autocast.hpp"

#include <ATen/autocast_mode.h>

#include <string>

#include "kolo/error.hpp"
#include "torch/autocast_state.hpp"

namespace kolo {

using namespace internal;
namespace {

c10::DeviceType autocast_type(const ::torch::Device& device) {
  if (device.is_cpu() || device.is_cuda()) return device.type();
  throw InvalidArgument("Autocast: the device must be a CPU or a GPU, but is " + device.str());
}

::torch::ScalarType autocast_dtype(::torch::ScalarType dtype) {
  if (dtype == at::kHalf || dtype == at::kBFloat16) return dtype;
  throw InvalidArgument(std::string("Autocast: the dtype must be f16 or bf16, but is ") +
                        c10::toString(dtype));
}

}  // namespace

Autocast::Autocast(::torch::Device device, ::torch::ScalarType dtype, bool enabled)
    : type_(autocast_type(device)) {
  const AutocastState old = autocast_state(type_);
  was_enabled_ = old.enabled;
  old_dtype_ = old.dtype;
  set_autocast_state(type_, {enabled, autocast_dtype(dtype)});
  at::autocast::increment_nesting();
}

// LibTorch keeps converted parameters in a cache for the next operation that uses them. A step
// changes parameters, so the outermost guard clears the cache.
Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set_autocast_state(type_, {was_enabled_, old_dtype_});
}

}  // namespace kolo
