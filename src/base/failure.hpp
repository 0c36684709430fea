// Why an operation fails, or a whole session: one type from where it is noticed to the exception
// that the user gets.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "base/rank_set.hpp"

namespace kolo::internal {

enum class FailureKind : std::uint8_t {
  mismatch,   // the ranks disagree about an operation
  peer_left,  // a rank has left, or was lost
  stalled,    // ranks did not do their part in time
  shut_down,  // this rank's session was shut down, or the process set removed
  backend,    // an error of this rank; to the others it is a rank that has left
};

struct Failure {
  FailureKind kind = FailureKind::peer_left;
  std::string message{};
  std::string tensor{};  // "": each operation's own, or none is concerned
  RankSet ranks{};       // to blame

  friend bool operator==(const Failure&, const Failure&) = default;
};

/// What `failure` of `rank` is to the other ranks: they cannot tell an error of that rank from its
/// departure.
[[nodiscard]] Failure as_seen_by_others(const Failure& failure, int rank);

/// The exception of include/kolo/error.hpp that has the kind's name.
[[nodiscard]] std::exception_ptr to_exception(const Failure& failure);

}  // namespace kolo::internal
