// SPDX-License-Identifier: Apache-2.0
// A view of a running job, from the file in which rank 0 keeps its status.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

namespace diagnose {

/// A status file that cannot be read. The message has the file.
class StatusError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The status file of a running job: that of `job`, a path or the process of a kolorun; or, for
/// `""`, the one that KOLO_STATUS_FILE names, or that of the only kolorun on this host that this
/// user has started. Throws StatusError with the jobs to choose from.
[[nodiscard]] std::string find_status_file(const std::string& job);

/// The status as a table, with the verdict as its last line. `now`: to notice an old status. Throws
/// StatusError if the text is no status.
[[nodiscard]] std::string status_as_table(const std::string& text,
                                          std::chrono::system_clock::time_point now);

struct TopOptions {
  std::string job{};
  bool once = false;
  bool json = false;
};

/// Prints the status every second until the job ends. Returns the exit status.
[[nodiscard]] int top(const TopOptions& options);

}  // namespace diagnose
