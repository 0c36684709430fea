// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/status_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "diagnostics/replace_file.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::diagnostics {

void StatusFile::require_writable(const std::string& path) {
  if (!path.empty() && !replace_file(path, ""))
    throw InvalidArgument(
        fmt::format("status_file={}: cannot be written: {}", path, error_text(errno)));
}

StatusFile::StatusFile(std::string path) : path_(std::move(path)) {
  try {
    const BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw BackendError(
        fmt::format("cannot start the thread that writes {}: {}", path_, error.what()));
  }
}

StatusFile::~StatusFile() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
  std::remove(path_.c_str());
}

void StatusFile::write(std::string text) {
  const std::lock_guard lock(mutex_);
  next_ = std::move(text);
  changed_.notify_one();
}

void StatusFile::run() {
  std::unique_lock lock(mutex_);
  bool warned = false;
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || next_; });
    if (stopping_) return;
    const std::string text = *std::exchange(next_, std::nullopt);
    lock.unlock();
    if (!replace_file(path_, text) && !std::exchange(warned, true))
      warn(fmt::format("the status file {} cannot be written: {}", path_, error_text(errno)));
    lock.lock();
  }
}

}  // namespace kolo::internal::diagnostics
