// SPDX-License-Identifier: Apache-2.0
// GPU tensors that LibTorch computes on the host.
#pragma once

namespace kolo::internal {

/// How often threads of this process have waited for the GPU: LibTorch to read from it, and Kolo
/// for a stream or an event.
[[nodiscard]] int waits_for_gpu();

}  // namespace kolo::internal
