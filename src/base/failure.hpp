// SPDX-License-Identifier: Apache-2.0
// The reason why an operation or a session fails: one type carries it from the detection to the
// exception that the user receives.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "base/rank_set.hpp"
#include "kolo/export.hpp"  // kolo::torch, another library, uses the marked function

namespace kolo::internal {

enum class FailureKind : std::uint8_t {
  mismatch,   // the ranks disagree about an operation
  peer_left,  // a rank has left, or was lost
  stalled,    // ranks were late by more than the stall timeout
  shut_down,  // this rank's session was shut down, or the process set removed
  backend,    // an error of this rank; to the others it is a rank that has left
  last = backend,
};

/// True if other ranks are at fault.
[[nodiscard]] constexpr bool is_of_others(FailureKind kind) {
  return kind == FailureKind::peer_left || kind == FailureKind::stalled;
}

struct Failure {
  FailureKind kind = FailureKind::peer_left;
  std::string message{};
  std::string tensor{};  // "": none, or the tensor of each operation that the failure ends
  RankSet ranks{};       // the ranks at fault

  friend bool operator==(const Failure&, const Failure&) = default;
};

/// The `failure` of `rank` as the other ranks see it: they cannot distinguish an error of that rank
/// from its departure.
[[nodiscard]] Failure as_seen_by_others(const Failure& failure, int rank);

/// The exception of include/kolo/error.hpp that is named after the failure's kind.
[[nodiscard]] std::exception_ptr to_exception(const Failure& failure);

/// The message of the exception that is being handled, or its type if it does not derive from
/// std::exception. Never empty. For `catch (...)`: callbacks of the program may throw anything.
[[nodiscard]] KOLO_EXPORT std::string message_of_current_exception();

}  // namespace kolo::internal
