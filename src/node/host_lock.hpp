// SPDX-License-Identifier: Apache-2.0
// A lock between the processes of a host.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "node/file_descriptor.hpp"
#include "node/not_inherited.hpp"

namespace kolo::internal::node {

/// Any process can lock a file that it can read, and keep the lock. So no thread waits for longer
/// than `patience`: it then goes on without the lock, with a warning, and for `pause` no thread of
/// this process waits at all. Thread-safe.
class HostLock {
 public:
  HostLock(std::string path, std::chrono::nanoseconds patience, std::chrono::nanoseconds pause)
      : path_(std::move(path)), patience_(patience), pause_(pause) {}

  /// Holds the lock as long as it lives. A child that is forked meanwhile does not hold it.
  class Guard {
   public:
    explicit Guard(HostLock& lock);
    ~Guard();
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

  void give_up();

  std::string path_;
  std::chrono::nanoseconds patience_;
  std::chrono::nanoseconds pause_;
  std::atomic<Clock::rep> paused_until_{Clock::time_point::min().time_since_epoch().count()};
  std::atomic<bool> warned_{false};
};

}  // namespace kolo::internal::node
