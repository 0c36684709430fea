// The private memory of another process of this host, read without its doing.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace kolo::node {

/// Copies `bytes` from where they lie in the other process, which must not change them meanwhile.
/// False if the process has ended, or has no such memory any more, or does not let this one read
/// it.
[[nodiscard]] bool read_memory(pid_t process, std::uintptr_t from, std::byte* to,
                               std::size_t bytes);

}  // namespace kolo::node
