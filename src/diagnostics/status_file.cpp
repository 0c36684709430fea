// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/status_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/log.hpp"
#include "base/process_limits.hpp"
#include "diagnostics/replace_file.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::diagnostics {
namespace {

// The end of a session must not wait longer for a file system that does not respond.
constexpr std::chrono::seconds patience{2};

/// True for the status of an earlier job, which was killed, and for an empty file.
bool is_status(const std::string& path) {
  std::ifstream file(path);
  std::string begin(32, ' ');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  return begin.empty() || begin.starts_with("{\"kolo_status\"") ||
         begin.starts_with("# HELP kolo_");
}

}  // namespace

void StatusFile::refuse_other_files(const std::string& path) {
  if (path.empty()) return;
  std::error_code unreadable;
  const auto type = std::filesystem::symlink_status(path, unreadable).type();
  if (type != std::filesystem::file_type::not_found &&
      type != std::filesystem::file_type::regular && type != std::filesystem::file_type::none)
    throw InvalidArgument(fmt::format("status_file={}: is not a regular file", path));
  if (type == std::filesystem::file_type::regular && !is_status(path))
    throw InvalidArgument(fmt::format(
        "status_file={}: is another file, which would be replaced; name a file of its own", path));
}

StatusFile::StatusFile(std::string path) : path_(std::move(path)) {
  try {
    const BlockedSignals blocked;
    thread_ = std::thread([own_path = path_, shared = shared_] { run(own_path, *shared); });
  } catch (const std::system_error& error) {
    throw BackendError(
        fmt::format("cannot start the thread that writes {}: {}", path_, error.what()));
  }
}

StatusFile::~StatusFile() {
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  const bool ended = shared_->changed.wait_for(lock, patience, [this] { return shared_->ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void StatusFile::write(std::string text) {
  const std::lock_guard lock(shared_->mutex);
  shared_->next = std::move(text);
  shared_->changed.notify_all();
}

void StatusFile::run(const std::string& path, Shared& shared) {
  std::unique_lock lock(shared.mutex);
  bool warned = false;
  while (!shared.stopping) {
    if (!shared.next) {
      shared.changed.wait(lock);
      continue;
    }
    const std::string text = *std::exchange(shared.next, std::nullopt);
    lock.unlock();
    if (!replace_file(path, text) && !std::exchange(warned, true))
      warn(fmt::format("the status file {} cannot be written: {}", path, error_text(errno)));
    lock.lock();
  }
  lock.unlock();
  std::remove(path.c_str());
  lock.lock();
  shared.ended = true;
  shared.changed.notify_all();
}

}  // namespace kolo::internal::diagnostics
