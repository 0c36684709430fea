// SPDX-License-Identifier: Apache-2.0
// The descriptor of a system call that may have failed.
#pragma once

#include "node/error_codes.hpp"
#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

/// Takes ownership of the result of a system call, such as "eventfd". Throws BackendError with that
/// name and the reason if it is negative, for example because the process has no descriptor left: a
/// `poll` of descriptor -1 would wait without end.
[[nodiscard]] inline FileDescriptor new_descriptor(int result, const char* call) {
  if (result < 0) throw_system_error(call);
  return FileDescriptor(result);
}

}  // namespace kolo::internal::node
