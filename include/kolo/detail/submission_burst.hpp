// SPDX-License-Identifier: Apache-2.0
// Submissions that the session is to find together.
#pragma once

#include <memory>
#include <optional>

#include "kolo/cuda.hpp"
#include "kolo/export.hpp"

namespace kolo::internal::session {
class Burst;
}

namespace kolo::detail {

/// While this object lives, the asynchronous operations that its thread submits are a burst: they
/// become visible to the session together, at the end or when the thread waits for an operation.
/// Operations of GPU tensors share one mark on their stream, set with the first of them: the work
/// that is on the stream by then has computed all of the tensors. A wait begins a new burst.
///
/// Objects nest: the outermost one counts. Must be destroyed by the thread that made it.
class [[nodiscard]] SubmissionBurst {
 public:
  /// `stream` has computed the GPU tensors; by default, the stream that is current at a submission.
  KOLO_EXPORT explicit SubmissionBurst(std::optional<StreamInUse> stream = {});
  KOLO_EXPORT ~SubmissionBurst();
  SubmissionBurst(const SubmissionBurst&) = delete;
  SubmissionBurst& operator=(const SubmissionBurst&) = delete;

 private:
  std::unique_ptr<internal::session::Burst> burst_;  // null within another burst
};

}  // namespace kolo::detail
