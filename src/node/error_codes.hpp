// SPDX-License-Identifier: Apache-2.0
// Error numbers of the operating system as exceptions.
#pragma once

#include <string>

namespace kolo::internal::node {

/// The operating system's text for an error number.
[[nodiscard]] std::string error_text(int error);

/// Throws BackendError with the name of the failed call and the text of errno.
[[noreturn]] void throw_system_error(const char* doing);

}  // namespace kolo::internal::node
