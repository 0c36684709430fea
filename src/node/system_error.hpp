// What the operating system refused, as an exception.
#pragma once

#include <string>

namespace kolo::node {

/// What an errno says.
[[nodiscard]] std::string error_text(int error);

/// Throws BackendError with `doing`, such as "memfd_create", and what errno says.
[[noreturn]] void throw_system_error(const char* doing);

}  // namespace kolo::node
