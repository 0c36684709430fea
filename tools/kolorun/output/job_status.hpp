// SPDX-License-Identifier: Apache-2.0
// Where rank 0 keeps the status of the job.
#pragma once

#include <string>

namespace kolorun {

/// A path for the status file, at which `kolo-diagnose top` finds it. The destructor removes the
/// file: a rank 0 that was killed has left it.
class JobStatus {
 public:
  /// Creates the directory of this user's status files.
  JobStatus();
  ~JobStatus();
  JobStatus& operator=(JobStatus&&) = delete;

  /// Empty if there is no such directory that nobody else can write.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string directory_;
  std::string path_{};
};

}  // namespace kolorun
