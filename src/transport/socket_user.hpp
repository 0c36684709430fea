// SPDX-License-Identifier: Apache-2.0
// The user at the other end of a TCP connection.
#pragma once

#include <sys/types.h>

#include <optional>

namespace kolo::internal::transport {

/// The user who opened the other end of a TCP connection, as the kernel knows it. None if the other
/// end is on another host or in another network namespace, or its process has closed it or has not
/// accepted it yet.
[[nodiscard]] std::optional<uid_t> user_of_peer(int socket);

/// True if the other end belongs to another user of this host, who must not take part in a job.
[[nodiscard]] bool is_of_another_user(int socket);

}  // namespace kolo::internal::transport
