// SPDX-License-Identifier: Apache-2.0
// The memory of parameters that a fully sharded model has freed.
#pragma once

#include <torch/types.h>

namespace kolo::internal {

/// One NaN, whose memory a freed parameter of any size refers to.
[[nodiscard]] ::torch::Tensor make_freed_element(const at::TensorOptions& options);

/// True for a tensor with such memory, and for a view of one.
[[nodiscard]] bool is_freed_parameter(const ::torch::Tensor& tensor);

/// True unless something has been written to a freed parameter on the CPU. On other devices, true.
[[nodiscard]] bool is_untouched(const ::torch::Tensor& freed_element);

}  // namespace kolo::internal
