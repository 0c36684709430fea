// SPDX-License-Identifier: Apache-2.0
#include "job_status.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "base/status_directory.hpp"

namespace kolorun {

JobStatus::JobStatus() : directory_(kolo::internal::status_directory()) {
  ::mkdir(directory_.c_str(), S_IRWXU);
  // In a directory that anyone may write, another user could have made it, or a link.
  struct stat found {};
  if (::lstat(directory_.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
      found.st_uid != ::geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return;
  path_ = directory_ + "/" + std::to_string(::getpid()) + ".json";
}

JobStatus::~JobStatus() {
  if (path_.empty()) return;
  std::remove(path_.c_str());
  std::remove((path_ + ".part").c_str());
  ::rmdir(directory_.c_str());  // fails while other jobs have files in it
}

}  // namespace kolorun
