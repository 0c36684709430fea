// SPDX-License-Identifier: Apache-2.0
// Exceptions, which all derive from kolo::Error, and functions that throw one rank's failure on
// every rank.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// The base class of all exceptions that Kolo throws. `tensor()` is the name of the operation or
/// tensor that failed, as the program named it, or "". `ranks()` lists the world ranks concerned,
/// in ascending order; it is empty if there are none.
class KOLO_EXPORT Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string tensor = {}, std::vector<int> ranks = {})
      : std::runtime_error(message), tensor_(std::move(tensor)), ranks_(std::move(ranks)) {}

  [[nodiscard]] const std::string& tensor() const noexcept { return tensor_; }
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }

 private:
  std::string tensor_;
  std::vector<int> ranks_;
};

/// An argument is wrong, or the call is not allowed at this time. Unless a function says otherwise,
/// the error is local to this rank: nothing was submitted, other ranks do not learn of it, and a
/// corrected call may use the same name.
class KOLO_EXPORT InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// An operation of this name is still pending on this rank. Nothing was submitted.
class KOLO_EXPORT DuplicateName : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

/// The ranks submitted the same name with different shapes, dtypes, operations, roots, scales or
/// other options, or the operation is undefined once ranks have joined. Every rank that submitted
/// it gets this error, no tensor is changed, and the session stays usable.
class KOLO_EXPORT Mismatch : public Error {
 public:
  using Error::Error;
};

/// A rank left the session, or was lost, while operations needed it. `ranks()` lists the rank. No
/// further collective in the world or in a process set that contains the rank can succeed. If the
/// rank's process or host was lost, the session cannot continue.
class KOLO_EXPORT PeerLeft : public Error {
 public:
  using Error::Error;
};

/// Some ranks did not submit an operation within `stall_shutdown`, or a running operation made no
/// progress for that time. `ranks()` lists the late ranks; if some of them do not respond, without
/// those that wait in Kolo themselves. In the first case the process set is unusable from now on;
/// in the second the session cannot continue.
class KOLO_EXPORT Stalled : public Error {
 public:
  using Error::Error;
};

/// The operation was pending when this rank's session ended or the operation's set was removed.
class KOLO_EXPORT ShutDown : public Error {
 public:
  using Error::Error;
};

/// MPI, CUDA, NCCL or the system failed on this rank. If an operation throws this error, the
/// session cannot continue.
class KOLO_EXPORT BackendError : public Error {
 public:
  using Error::Error;
};

/// There is no session: `kolo::init` was not called, or the session has ended.
class KOLO_EXPORT NotInitialized : public Error {
 public:
  using Error::Error;
};

/// Runs `work` on every rank of the set. If `work` throws on any rank, every rank throws Error with
/// the message of the lowest failed rank; `ranks()` lists all failed ranks. Without this function,
/// a rank that fails alone leaves the others waiting in their next collective. Errors that end the
/// session or the set (PeerLeft, Stalled, ShutDown, BackendError, NotInitialized) are rethrown
/// unchanged, because the other ranks get their own errors. Collective; one call at a time per set.
KOLO_EXPORT void on_every_rank(const std::function<void()>& work, const ProcessSet& set = {});

/// Runs `work` on world rank `root`, a member of the set, while the others wait. If `work` throws,
/// every rank throws Error with the same message; errors that end the session or the set are
/// rethrown unchanged on the root. `work` must not call collectives of the set. Collective; one
/// call at a time per set. Throws InvalidArgument for a root outside the set.
KOLO_EXPORT void on_one_rank(int root, const std::function<void()>& work,
                             const ProcessSet& set = {});

}  // namespace kolo
