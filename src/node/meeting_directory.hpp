// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a host meet.
#pragma once

#include <unistd.h>

namespace kolo::internal::node {

/// The directory for the sockets and locks of a host's ranks: /tmp, since Kolo leaves nothing in
/// /dev/shm where that can be avoided, or /dev/shm where /tmp is not writable, as in containers
/// whose file system is read-only.
[[nodiscard]] inline const char* meeting_directory() {
  return ::access("/tmp", W_OK) == 0 ? "/tmp" : "/dev/shm";
}

}  // namespace kolo::internal::node
