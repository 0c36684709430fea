// SPDX-License-Identifier: Apache-2.0
#include "base/failure.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <typeinfo>

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

std::string message_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "an error without a message" : error.what();
  } catch (...) {
    const std::type_info* const type = abi::__cxa_current_exception_type();
    if (type == nullptr) return "an exception of another language";
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
    return fmt::format("an exception of type {}, which does not derive from std::exception",
                       name == nullptr ? type->name() : name.get());
  }
}

}  // namespace kolo::internal
