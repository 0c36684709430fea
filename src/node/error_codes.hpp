// SPDX-License-Identifier: Apache-2.0
// Error codes of the operating system and of MPI as exceptions.
#pragma once

#include <fmt/format.h>

#include <cerrno>

#include "base/process_limits.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::node {

/// Throws BackendError with the failed call and the text of errno.
[[noreturn]] inline void throw_system_error(const char* doing) {
  throw BackendError(fmt::format("{} failed: {}", doing, error_text(errno)));
}

/// Throws BackendError if `code` is not MPI_SUCCESS. `doing` is the call that returned it, such as
/// "MPI_Iallreduce". The communicator must return errors (MPI_ERRORS_RETURN), or MPI ends the
/// process before this is reached. Defined in mpi_codes.cpp, if Kolo is built with MPI.
void check_mpi(int code, const char* doing);

}  // namespace kolo::internal::node
