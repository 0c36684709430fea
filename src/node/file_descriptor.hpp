// SPDX-License-Identifier: Apache-2.0
// An open file descriptor that is closed once.
#pragma once

#include <unistd.h>

#include <utility>

namespace kolo::internal::node {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  /// Takes ownership of `fd`. A negative number means none.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace kolo::internal::node
