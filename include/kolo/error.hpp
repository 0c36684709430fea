// What can go wrong, as exceptions. Every one derives from kolo::Error.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

/// The base of every exception that Kolo throws. Copying one does not throw more than a string's
/// copy may. `tensor()` is the operation's name as its user gave it, or "" where none is concerned;
/// `ranks()` are ranks of the world, ascending, empty where none can be singled out.
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

/// The call itself was wrong. Local to this rank: nothing was submitted, other ranks do not learn
/// of it, and the call may be repeated correctly under the same name.
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
/// other options, or the operation is undefined once ranks have joined. Every rank that
/// submitted it gets this error, no tensor was changed, and the session goes on.
class KOLO_EXPORT Mismatch : public Error {
 public:
  using Error::Error;
};

/// A rank left the session while others still count on it. `ranks()` names it. No further
/// collective of the world or of a process set that holds it can succeed.
class KOLO_EXPORT PeerLeft : public Error {
 public:
  using Error::Error;
};

/// Some ranks did not submit an operation within the time set by `stall_shutdown`, or an operation
/// under way made no progress for so long. `ranks()` lists the late ranks. The process set is
/// unusable from now on.
class KOLO_EXPORT Stalled : public Error {
 public:
  using Error::Error;
};

/// The operation was pending when this rank's session was shut down or its process set removed.
class KOLO_EXPORT ShutDown : public Error {
 public:
  using Error::Error;
};

/// MPI, or another library that carries data, failed. The session cannot go on.
class KOLO_EXPORT BackendError : public Error {
 public:
  using Error::Error;
};

/// There is no session: `kolo::init` was not called, or the session has ended.
class KOLO_EXPORT NotInitialized : public Error {
 public:
  using Error::Error;
};

}  // namespace kolo
