// SPDX-License-Identifier: Apache-2.0
// Files in --output-dir that tell other programs what has failed: of each process that has failed,
// and of the job. JSON objects, written whole.
#pragma once

#include <string>

#include "rendezvous/message.hpp"
#include "rendezvous/server/tcp_server.hpp"

namespace kolorun {

/// Writes `path` with the members "host", "pid", "status", "signal" (0: none), "detail",
/// "last_lines" and "time" (seconds since 1970). A file that cannot be written is left out: the
/// process has failed, and this is no other reason.
void write_error_file(const std::string& path, const std::string& host, int pid,
                      const kolo::internal::rendezvous::Exited& exited);

/// Writes `folder`/error.json with the members "status", "reason", "last_lines", "waits",
/// "restarts" (how often the job had started again), "starts_again" and "time". Removes an earlier
/// one if the job has not failed.
void write_job_error_file(const std::string& folder, const kolo::internal::rendezvous::JobEnd& end,
                          int restarts);

/// The newest flight records in `folder` since the job began, as a pattern for a shell; "" if there
/// are none. `seconds`: how long ago that was.
[[nodiscard]] std::string flight_records_in(const std::string& folder, double seconds);

}  // namespace kolorun
