// Which way the backend of shared memory takes in a test program.
#pragma once

#include <cstdint>

namespace kolo::backend {

/// Pieces of at least so many bytes are read in other ranks' private memory.
[[nodiscard]] std::int64_t single_copy_from();

}  // namespace kolo::backend
