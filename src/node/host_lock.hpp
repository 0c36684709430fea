// SPDX-License-Identifier: Apache-2.0
// A lock between the processes of a host, and the directory of their locks.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "node/file_descriptor.hpp"
#include "node/not_inherited.hpp"

namespace kolo::internal::node {

/// The directory in which the processes of a host meet: /tmp, since Kolo leaves nothing in /dev/shm
/// where that can be avoided, or /dev/shm where /tmp is not writable, as in containers whose file
/// system is read-only.
[[nodiscard]] inline const char* meeting_directory() {
  return ::access("/tmp", W_OK) == 0 ? "/tmp" : "/dev/shm";
}

/// An flock on a file that only this user can open, since whoever can open it can keep the lock. If
/// the file does not exist, it is made; if it belongs to another user or others can open it, the
/// caller goes on without the lock, with a warning. A process of this user can still keep the lock,
/// so no thread waits longer than `patience`: it then goes on without, with a warning, and for
/// `pause` no thread of this process waits at all. Thread-safe.
class HostLock {
 public:
  HostLock(std::string path, std::chrono::nanoseconds patience, std::chrono::nanoseconds pause)
      : path_(std::move(path)), patience_(patience), pause_(pause) {}

  /// Holds the lock as long as it lives. A child that is forked meanwhile does not hold it.
  class Guard {
   public:
    explicit Guard(HostLock& lock) {
      const Clock::time_point begin = Clock::now();
      if (begin.time_since_epoch().count() < lock.paused_until_) return;
      file_ = open_own(lock.path_);
      if (!file_.valid()) {
        lock.do_without();
        return;
      }
      // A forked child that inherits the descriptor would keep the lock of a parent that is killed.
      not_inherited_ = NotInherited(file_.get());
      for (;;) {
        holds_ = ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0;
        if (holds_ || (errno != EWOULDBLOCK && errno != EINTR)) return;
        if (Clock::now() - begin >= lock.patience_) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      lock.give_up();
    }
    ~Guard() {
      // Unlock explicitly: if a child has a copy of the descriptor after all, closing this one
      // would leave the file locked.
      if (holds_) ::flock(file_.get(), LOCK_UN);
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    /// False if the caller goes on without the lock.
    [[nodiscard]] bool holds() const { return holds_; }

   private:
    FileDescriptor file_{};
    NotInherited not_inherited_{};
    bool holds_ = false;
  };

 private:
  using Clock = std::chrono::steady_clock;

  /// Opens the file, or makes it. The result is invalid if that fails, if the file belongs to
  /// another user, or if others can open it.
  [[nodiscard]] static FileDescriptor open_own(const std::string& path) {
    FileDescriptor file(::open(
        path.c_str(), O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, S_IRUSR | S_IWUSR));
    struct stat status {};
    const bool is_own = file.valid() && ::fstat(file.get(), &status) == 0 &&
                        S_ISREG(status.st_mode) && status.st_uid == ::geteuid() &&
                        (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
    return is_own ? std::move(file) : FileDescriptor();
  }

  void do_without() {
    if (warned_.exchange(true)) return;
    log(LogLevel::warning,
        fmt::format("{} cannot be made, or belongs to another user, or others can open it, so the "
                    "ranks of this host reserve memory without a lock: if together they reserve "
                    "more than is available, the kernel kills one of them. Remove the file",
                    path_));
  }

  void give_up() {
    paused_until_ = (Clock::now() + pause_).time_since_epoch().count();
    if (warned_.exchange(true)) return;
    log(LogLevel::warning,
        fmt::format(
            "another process has held the lock of {} for {} s, so this rank reserves memory "
            "without it: if the ranks together reserve more than is available, the kernel "
            "kills one of them. `lslocks` names the process; terminate it, or let it unlock "
            "the file",
            path_, std::chrono::duration<double>(patience_).count()));
  }

  std::string path_;
  std::chrono::nanoseconds patience_;
  std::chrono::nanoseconds pause_;
  std::atomic<Clock::rep> paused_until_{Clock::time_point::min().time_since_epoch().count()};
  std::atomic<bool> warned_{false};
};

}  // namespace kolo::internal::node
