// SPDX-License-Identifier: Apache-2.0
#include "node/other_process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"
#include "node/process_state.hpp"

namespace kolo::internal::node {
namespace {

[[noreturn]] void throw_not_seen(int error) {
  if (error == EMFILE || error == ENFILE)
    throw BackendError(fmt::format(
        "no file descriptor is left for the process of another rank of this host: {}. Raise the "
        "limit{}",
        error_text(error), error == EMFILE ? " of open files, `ulimit -n`" : ", fs.file-max"));
  throw BackendError(
      "the process of another rank of this host cannot be seen: it may be in another PID "
      "namespace, or /proc may not be mounted. Start the containers of a host with one PID "
      "namespace");
}

}  // namespace

// A process that cannot be seen from here would count as ended at once, or its end would never be
// noticed. The constructor refuses it.
OtherProcess::OtherProcess(pid_t pid)
    : pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))), pid_(pid) {
  int error = errno;
  started_ = start_of_process(pid);
  if (error != EMFILE && error != ENFILE) error = errno;
  if (pid <= 0 || (!pidfd_.valid() && started_ == 0)) throw_not_seen(error);
}

bool OtherProcess::ended() const noexcept {
  if (pid_ == 0) return false;
  if (!pidfd_.valid()) return process_ended(pid_, started_);
  pollfd end{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&end, 1, 0) == 1 && (end.revents & POLLIN) != 0;
}

/// A pidfd refers to one process for good. A process number may be reused, hence the check of
/// `ended`.
void OtherProcess::kill() const noexcept {
  if (pid_ == 0) return;
  if (pidfd_.valid()) {
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  } else if (!ended()) {
    ::kill(pid_, SIGKILL);
  }
}

}  // namespace kolo::internal::node
