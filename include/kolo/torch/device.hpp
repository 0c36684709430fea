// SPDX-License-Identifier: Apache-2.0
// The device for this rank.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <c10/core/Device.h>
#include <torch/types.h>

#include "kolo/export.hpp"

namespace kolo {

/// The device that this rank should use. If Kolo and LibTorch support CUDA and there is a GPU: the
/// GPU with index `local_rank()` modulo the number of visible GPUs. Otherwise the CPU. In an
/// elastic job, where `local_rank()` changes, a process keeps its GPU.
[[nodiscard]] KOLO_EXPORT ::torch::Device local_device();

}  // namespace kolo
