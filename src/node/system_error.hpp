// What the operating system refused, as an exception.
#pragma once

namespace kolo::node {

/// Throws BackendError with `doing`, such as "memfd_create", and what errno says.
[[noreturn]] void throw_system_error(const char* doing);

}  // namespace kolo::node
