// SPDX-License-Identifier: Apache-2.0
// A lock between the processes of a host.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

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

/// An flock on a file. Any process that can read the file can take the lock and keep it, so no
/// thread waits longer than `patience`: it then continues without the lock, with a warning, and for
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
      file_ = FileDescriptor(::open(lock.path_.c_str(), O_RDONLY | O_CLOEXEC));
      if (!file_.valid()) return;
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
