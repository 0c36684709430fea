// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_save.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"
#include "training/checkpoint/checkpoint_directory.hpp"
#include "training/checkpoint/checkpoint_files.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// How often rank 0 looks for the files of other ranks: more and more rarely. Nothing tells it: the
// thread takes no part in collectives, which belong to the program's threads.
constexpr std::chrono::milliseconds first_look{20};
constexpr std::chrono::milliseconds last_look{1000};
// How long rank 0 awaits a file: a complete one may become visible late on another host.
std::chrono::seconds patience_with(BackgroundSave::Others others) {
  using enum BackgroundSave::Others;
  if (others == have_written) return 120s;
  // A file that has not grown for long has no writer any more, unless the disk is slow to flush.
  if (others == may_end) return 300s;
  return others == may_be_gone ? 5s : 0s;
}

}  // namespace

void SaveJob::write() const {
  if (file < 0) return;
  write_checkpoint_file(checkpoint_file(folder, file, header.files), header, state);
}

int SaveJob::first_missing(int from) const {
  std::error_code error;
  while (from < header.files && fs::exists(checkpoint_file(folder, from, header.files), error))
    ++from;
  return from;
}

BackgroundSave::BackgroundSave(SaveJob job) : job_(std::move(job)) {
  const BlockedSignals blocked;  // which the thread inherits
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    error_.emplace(CheckpointFault::io, job_.folder,
                   fmt::format("checkpoint '{}' cannot be written: there is no further thread: {}",
                               job_.folder.string(), error.what()));
    is_done_ = true;
  }
}

BackgroundSave::~BackgroundSave() {
  {
    const std::lock_guard lock(mutex_);
    // An exception leaves the program's loop: the ranks may have lost one of them.
    others_ = std::uncaught_exceptions() > 0 ? Others::may_be_gone : Others::may_end;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  clear();
  if (error_) warn(fmt::format("a checkpoint was not saved: {}", error_->what()));
}

bool BackgroundSave::is_writing() const {
  const std::lock_guard lock(mutex_);
  return !has_written_ && !is_done_;
}

std::optional<CheckpointError> BackgroundSave::wait_for_file() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_written_ || is_done_; });
  return error_;
}

std::optional<CheckpointError> BackgroundSave::finish(Others others) {
  std::unique_lock lock(mutex_);
  others_ = others;
  changed_.notify_all();
  changed_.wait(lock, [&] { return is_done_; });
  clear();
  return std::exchange(error_, std::nullopt);
}

/// Removes the folder of a failed save. Not before its end is asked for: other ranks may still
/// write into it, and would fail because of this rank's failure.
void BackgroundSave::clear() const {
  if (error_ && job_.publish) CheckpointDirectory::give_up(job_.folder);
}

void BackgroundSave::run() {
  std::optional<CheckpointError> failure;
  try {
    job_.write();
    {
      const std::lock_guard lock(mutex_);
      has_written_ = true;
    }
    changed_.notify_all();
    if (job_.publish) publish_when_complete();
  } catch (const CheckpointError& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure.emplace(CheckpointFault::io, job_.folder,
                    fmt::format("checkpoint '{}': {}", job_.folder.string(), error.what()));
  }
  const std::lock_guard lock(mutex_);
  error_ = std::move(failure);
  is_done_ = true;
  changed_.notify_all();
}

void BackgroundSave::publish_when_complete() {
  std::chrono::milliseconds wait = first_look;
  for (int missing = 0; (missing = job_.first_missing(missing)) < job_.header.files;) {
    const Others seen = require_awaited(checkpoint_file(job_.folder, missing, job_.header.files));
    std::unique_lock lock(mutex_);
    const bool has_changed = changed_.wait_for(lock, wait, [&] { return others_ != seen; });
    wait = has_changed ? first_look : std::min(2 * wait, last_look);
  }
  job_.publish();
}

BackgroundSave::Others BackgroundSave::require_awaited(const fs::path& missing) {
  Others others{};
  {
    const std::lock_guard lock(mutex_);
    others = others_;
  }
  if (others == Others::write) return others;
  const Clock::time_point now = Clock::now();
  const std::uintmax_t bytes = bytes_in_folder();
  if (others != others_then_ || (others != Others::have_written && bytes != bytes_)) since_ = now;
  others_then_ = others;
  bytes_ = bytes;
  if (now - since_ < patience_with(others)) return others;
  throw CheckpointError(CheckpointFault::missing, missing,
                        fmt::format("checkpoint '{}' is given up: its file '{}' has not come",
                                    job_.folder.string(), missing.filename().string()));
}

std::uintmax_t BackgroundSave::bytes_in_folder() const {
  std::uintmax_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator i(job_.folder, error), end; !error && i != end; i.increment(error))
    if (const std::uintmax_t size = i->file_size(error); !error) bytes += size + 1;
  return bytes;
}

}  // namespace kolo::internal
