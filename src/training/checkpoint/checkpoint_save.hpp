// SPDX-License-Identifier: Apache-2.0
// One save of a checkpoint: this rank's file, and on rank 0 the checkpoint as a whole.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "kolo/training/checkpoint.hpp"
#include "training/checkpoint/checkpoint_header.hpp"

namespace kolo::internal {

struct SaveJob {
  std::filesystem::path folder{};
  CheckpointHeader header{};
  int file = -1;  // this rank's, from 0; -1: none
  StateView state{};
  /// Makes the folder a checkpoint once all files are complete. Empty on other ranks than rank 0.
  std::function<void()> publish{};

  /// Writes this rank's file. Throws CheckpointError.
  void write() const;
  /// The number of the first file, from this one on, that does not exist; the number of files if
  /// all do.
  [[nodiscard]] int first_missing(int from) const;
};

/// Does a SaveJob on a thread of its own. Rank 0's thread waits until the files of all ranks exist,
/// and publishes them. Thread-safe, but for the destructor.
class BackgroundSave {
 public:
  /// If there can be no further thread, that is the error.
  explicit BackgroundSave(SaveJob job);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  /// Waits for the end. Other ranks may be gone, so rank 0 gives up when no file has grown for five
  /// minutes, or some seconds if an exception ends the scope. A warning reports a failure that
  /// nobody has asked for.
  ~BackgroundSave();

  [[nodiscard]] const SaveJob& job() const { return job_; }
  /// True until this rank's file is complete.
  [[nodiscard]] bool is_writing() const;
  /// Waits until this rank's file is complete. Returns the error if it could not be written.
  [[nodiscard]] std::optional<CheckpointError> wait_for_file();

  /// The state of the other ranks, which decides how long their files are awaited.
  enum class Others : std::uint8_t {
    write,         // they may still write
    have_written,  // their files come as soon as the file system shows them
    may_end,       // files that have not grown for minutes are not awaited
    may_be_gone,   // nor those that have not grown for some seconds
    are_gone,      // no file is awaited
  };
  /// Waits for the end. Returns the error, once.
  [[nodiscard]] std::optional<CheckpointError> finish(Others others);

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void clear() const;
  void publish_when_complete();
  /// Throws if the missing file is not awaited any longer.
  Others require_awaited(const std::filesystem::path& missing);
  [[nodiscard]] std::uintmax_t bytes_in_folder() const;

  const SaveJob job_;
  mutable std::mutex mutex_{};
  std::condition_variable changed_{};
  // Guarded by the mutex:
  bool has_written_ = false;
  bool is_done_ = false;
  Others others_ = Others::write;
  std::optional<CheckpointError> error_{};
  // Used only by the thread:
  std::uintmax_t bytes_ = 0;   // in the folder
  Clock::time_point since_{};  // when they, or `others_`, have changed
  Others others_then_ = Others::write;
  std::thread thread_{};
};

}  // namespace kolo::internal
