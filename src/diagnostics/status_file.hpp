// SPDX-License-Identifier: Apache-2.0
// The file in which tools find the status of a running job.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace kolo::internal::diagnostics {

/// Writes texts to a file, each in place of the one before, on a thread of its own: a slow file
/// system must not delay the training. The destructor removes the file.
class StatusFile {
 public:
  /// Creates the file. Throws InvalidArgument, with the system's reason, if it cannot be written.
  /// An empty path is not checked.
  static void require_writable(const std::string& path);

  /// Throws BackendError if no thread can be started.
  explicit StatusFile(std::string path);
  ~StatusFile();
  StatusFile& operator=(StatusFile&&) = delete;

  /// Writes the text soon. A text that was not written yet is dropped.
  void write(std::string text);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void run();

  std::string path_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> next_{};
  bool stopping_ = false;
  std::thread thread_{};
};

}  // namespace kolo::internal::diagnostics
