// SPDX-License-Identifier: Apache-2.0
#include "node/host_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <thread>

#include "base/log.hpp"

namespace kolo::internal::node {

HostLock::Guard::Guard(HostLock& lock) {
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

HostLock::Guard::~Guard() {
  // Unlock explicitly: closing the descriptor does not, if a child has a copy of it nevertheless.
  if (holds_) ::flock(file_.get(), LOCK_UN);
}

void HostLock::give_up() {
  paused_until_ = (Clock::now() + pause_).time_since_epoch().count();
  if (warned_.exchange(true)) return;
  const double seconds = std::chrono::duration<double>(patience_).count();
  log(LogLevel::warning,
      fmt::format(
          "another process has held the lock of {} for {} s, so this rank reserves memory "
          "without it: if the ranks together reserve more than is available, the kernel kills one "
          "of them. `lslocks` names the process; terminate it, or let it unlock the file",
          path_, seconds));
}

}  // namespace kolo::internal::node
