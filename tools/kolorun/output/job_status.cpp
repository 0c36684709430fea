// SPDX-License-Identifier: Apache-2.0
#include "job_status.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "diagnose/status_directory.hpp"

namespace kolorun {
namespace {

/// Removes the files of kolorun processes that were killed.
void remove_old_files(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    pid_t process = 0;
    std::from_chars(name.data(), name.data() + name.size(), process);
    if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH)
      std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace

JobStatus::JobStatus() : directory_(kolo::internal::status_directory()) {
  ::mkdir(directory_.c_str(), S_IRWXU);
  // In a directory that anyone may write, another user could have made it, or a link.
  struct stat found {};
  if (::lstat(directory_.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
      found.st_uid != ::geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return;
  remove_old_files(directory_);
  path_ = directory_ + "/" + std::to_string(::getpid()) + ".json";
}

JobStatus::~JobStatus() {
  if (path_.empty()) return;
  std::remove(path_.c_str());
  std::remove((path_ + ".part").c_str());
  // The directory stays: another job may be about to write its file.
}

}  // namespace kolorun
