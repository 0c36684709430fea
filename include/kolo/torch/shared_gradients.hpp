// SPDX-License-Identifier: Apache-2.0
// Gradients in memory that the ranks of a host share.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

namespace internal {
class SharedBlocks;
}

/// While it lives, LibTorch's gradients of this module are in memory that the ranks of the host
/// share. They are then reduced in place, with fewer copies:
///
///     const kolo::Session session;
///     const kolo::SharedGradients shared(*model);
///
/// LibTorch does not say what an allocation is for. So every CPU tensor that is allocated during a
/// backward pass and is as large as one of the module's parameters is in shared memory: gradients,
/// and some temporary tensors. Parameters below 4 KiB do not count. Freed memory is kept for the
/// next tensor of its size until this object is destroyed. Tensors stay valid after that, and after
/// the session. Where ranks cannot share memory, or there is not enough, LibTorch's own allocator
/// is used. A forked child sees later changes of its parent's gradients, as of a SharedVector.
///
/// Construct it when the module has its final dtypes, and again in each new session. It changes the
/// allocator of the whole process; set one of your own, with `c10::SetCPUAllocator`, before. The
/// constructor throws NotInitialized outside a session, and InvalidArgument if an allocator of the
/// program cannot be replaced. Not collective: ranks may differ in it. Tensors may be allocated and
/// freed on any thread. Neither movable nor copyable.
class SharedGradients {
 public:
  KOLO_EXPORT explicit SharedGradients(const ::torch::nn::Module& module);
  KOLO_EXPORT ~SharedGradients();
  SharedGradients(const SharedGradients&) = delete;
  SharedGradients& operator=(const SharedGradients&) = delete;

  /// Bytes in shared memory now: those of living tensors, and those that are kept for the next.
  [[nodiscard]] KOLO_EXPORT std::size_t bytes() const;

 private:
  std::shared_ptr<internal::SharedBlocks> blocks_;
};

}  // namespace kolo
