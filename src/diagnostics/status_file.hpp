// SPDX-License-Identifier: Apache-2.0
// The file in which tools find the status of a running job.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace kolo::internal::diagnostics {

/// Writes texts to a file, each in place of the one before, on a thread of its own: a slow file
/// system must not delay the training. A file that cannot be written costs a warning, and never the
/// session. The destructor removes the file.
class StatusFile {
 public:
  /// Throws InvalidArgument if there is a file at the path that would be replaced and is not the
  /// status of an earlier job. An empty path is not checked.
  static void refuse_other_files(const std::string& path);

  /// Throws BackendError if no thread can be started.
  explicit StatusFile(std::string path);
  ~StatusFile();
  StatusFile& operator=(StatusFile&&) = delete;

  /// Writes the text soon. A text that was not written yet is dropped.
  void write(std::string text);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  /// The thread may outlive the object, if a file system does not respond.
  struct Shared {
    std::mutex mutex{};
    std::condition_variable changed{};
    std::optional<std::string> next{};
    bool stopping = false;
    bool ended = false;
  };
  static void run(const std::string& path, Shared& shared);

  std::string path_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::thread thread_{};
};

}  // namespace kolo::internal::diagnostics
