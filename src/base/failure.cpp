// SPDX-License-Identifier: Apache-2.0
#include "base/failure.hpp"

#include <fmt/format.h>

#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

template <typename Exception>
std::exception_ptr exception_of(const Failure& failure) {
  return std::make_exception_ptr(
      Exception(failure.message, failure.tensor, failure.ranks.to_vector()));
}

}  // namespace

Failure as_seen_by_others(const Failure& failure, int rank) {
  if (failure.kind != FailureKind::backend) return failure;
  return {.kind = FailureKind::peer_left,
          .message = fmt::format("rank {} cannot go on: {}", rank, failure.message),
          .ranks = RankSet::of(rank)};
}

std::exception_ptr to_exception(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::mismatch: return exception_of<Mismatch>(failure);
    case FailureKind::peer_left: return exception_of<PeerLeft>(failure);
    case FailureKind::stalled: return exception_of<Stalled>(failure);
    case FailureKind::shut_down: return exception_of<ShutDown>(failure);
    case FailureKind::backend: return exception_of<BackendError>(failure);
  }
  std::terminate();
}

}  // namespace kolo::internal
