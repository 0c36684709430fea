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
/// LibTorch does not say what an allocation is for. So every tensor on the CPU that is as large as
/// one of the module's parameters is allocated there: gradients, and also other tensors of these
/// sizes, such as temporary ones. Parameters below 4 KiB do not count. Tensors that are freed leave
/// their memory for the next of the same size until this object is destroyed. What was allocated
/// stays valid, also after the session. Where ranks cannot share memory, or this rank has used its
/// share of the host's memory, the blocks are ordinary memory.
///
/// Construct it once the module has its dtypes, and again after the session has ended and another
/// one has begun. The allocator belongs to the whole process: a program that installs its own,
/// with `c10::SetCPUAllocator`, must do so before. Throws NotInitialized outside a session. Not
/// collective; ranks may differ in it. Neither movable nor copyable. Tensors may be allocated and
/// freed on any thread.
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
