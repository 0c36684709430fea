// SPDX-License-Identifier: Apache-2.0
// Gradients in memory that the ranks of a host share.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>

#include <cstddef>
#include <memory>

#include "kolo/export.hpp"

namespace kolo {

namespace internal {
class SharedBlocks;
}

/// While this object exists, the gradients that LibTorch allocates for this module are in memory
/// that the ranks of the host share. Kolo then reduces them in place, with fewer copies:
///
///     const kolo::Session session;
///     const kolo::SharedGradients shared(*model);
///
/// LibTorch does not tell its allocator what a tensor is for. So every CPU tensor that is allocated
/// during a backward pass and has exactly as many bytes as one of the parameters is in shared
/// memory: gradients, and some temporary tensors. Parameters smaller than 4 KiB are ignored. The
/// memory of a freed tensor is kept for the next one of the same size until this object is
/// destroyed. Tensors stay valid after that, and after the session ends. Where ranks cannot share
/// memory, or there is not enough of it, ordinary memory is used. A forked child sees later
/// changes of its parent's gradients, as of a SharedVector.
///
/// Construct it after the module has its final dtypes, and a new one in each session. It changes
/// the allocator of the whole process; set one of your own, with `c10::SetCPUAllocator`, before.
/// The constructor throws NotInitialized outside a session, and InvalidArgument if an allocator of
/// the program cannot be replaced. Ranks may differ in it. Thread-safe. Neither movable nor
/// copyable.
class SharedGradients {
 public:
  KOLO_EXPORT explicit SharedGradients(const ::torch::nn::Module& module);
  KOLO_EXPORT ~SharedGradients();
  SharedGradients(const SharedGradients&) = delete;
  SharedGradients& operator=(const SharedGradients&) = delete;

  /// Bytes that it has allocated: in use by tensors, and kept for reuse.
  [[nodiscard]] KOLO_EXPORT std::size_t bytes() const;

 private:
  std::shared_ptr<internal::SharedBlocks> blocks_;
};

}  // namespace kolo
