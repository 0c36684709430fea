// SPDX-License-Identifier: Apache-2.0
// Neither MPI nor a session survives a fork: the child of a process that has started Kolo must not
// use it.
#pragma once

namespace kolo::internal::session {

/// From now on the children of this process count as forked.
void watch_forks();

/// True in a process that was forked from one that watched.
[[nodiscard]] bool forked() noexcept;

/// Throws InvalidArgument if this process was forked.
void require_not_forked();

}  // namespace kolo::internal::session
