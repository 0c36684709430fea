// SPDX-License-Identifier: Apache-2.0
// Mixed precision: LibTorch operations in a two-byte type where that is safe.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <c10/core/Device.h>
#include <torch/types.h>

#include "kolo/export.hpp"

namespace kolo {

/// A guard for mixed precision. While it lives, LibTorch's operations on its type of device convert
/// their inputs to `dtype` where that is safe (such as convolutions and matrix products), and to
/// f32 where it is not (such as sums and losses). Parameters and their gradients stay f32:
///
///     torch::Tensor loss;
///     {
///       const kolo::Autocast autocast(device, torch::kBFloat16);
///       loss = criterion(model->forward(images), labels);
///     }
///     loss.backward();  // outside: each operation's backward uses the type of its forward
///
/// The destructor restores the previous setting, even after an exception. The outermost guard also
/// drops the cached converted parameters, so destroy it before the optimizer's step. Guards may
/// nest; with `enabled` false, operations inside compute in the types of their inputs.
///
/// A guard affects only the thread that constructed it. Destroy guards on that thread, in the
/// reverse order of construction. f16 gradients need a `GradScaler`; bf16 gradients do not.
/// LibTorch 1.13 has no f16 operations on CPUs.
class [[nodiscard]] Autocast {
 public:
  /// Throws InvalidArgument for a device other than a CPU or a GPU, and for a dtype other than f16
  /// and bf16.
  KOLO_EXPORT explicit Autocast(::torch::Device device, ::torch::ScalarType dtype,
                                bool enabled = true);
  KOLO_EXPORT ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType type_;
  bool was_enabled_;
  ::torch::ScalarType old_dtype_;
};

}  // namespace kolo
