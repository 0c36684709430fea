// SPDX-License-Identifier: Apache-2.0
// The limits of this process (getrlimit): how error messages name them, and the signals that they
// send.
#pragma once

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>

namespace kolo::internal {

struct ProcessLimit {
  int resource;
  std::string_view name;
  std::string_view unit;
  char option;  // the option of the shell's `ulimit`
};

inline constexpr auto process_limits =
    std::to_array<ProcessLimit>({{RLIMIT_AS, "RLIMIT_AS", "bytes", 'v'},
                                 {RLIMIT_CPU, "RLIMIT_CPU", "s", 't'},
                                 {RLIMIT_DATA, "RLIMIT_DATA", "bytes", 'd'},
                                 {RLIMIT_FSIZE, "RLIMIT_FSIZE", "bytes", 'f'},
                                 {RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK", "bytes", 'l'},
                                 {RLIMIT_NOFILE, "RLIMIT_NOFILE", "files", 'n'},
                                 {RLIMIT_NPROC, "RLIMIT_NPROC", "processes", 'u'},
                                 {RLIMIT_STACK, "RLIMIT_STACK", "bytes", 's'}});

/// The number of descriptors that strangers may use up in one place: `wanted`, or less if this
/// process may not open many.
[[nodiscard]] inline std::size_t descriptors_for_strangers(std::size_t wanted) {
  constexpr std::size_t fewest = 4;
  rlimit limit{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return std::max(fewest, std::min<std::size_t>(wanted, limit.rlim_cur / 8));
}

/// The limits among `resources` (RLIMIT_...) that are set, with their values and the options of the
/// shell's `ulimit` that raise them, in parentheses after a space; "" if none is set.
[[nodiscard]] inline std::string limits_text(std::initializer_list<int> resources) {
  std::string text;
  for (const ProcessLimit& limit : process_limits) {
    rlimit value{};
    if (std::ranges::find(resources, limit.resource) == resources.end() ||
        ::getrlimit(static_cast<__rlimit_resource_t>(limit.resource), &value) != 0 ||
        value.rlim_cur == RLIM_INFINITY)
      continue;
    text += fmt::format("{}{} of this process is {} {}: raise it with `ulimit -{}`",
                        text.empty() ? " (" : "; ", limit.name, value.rlim_cur, limit.unit,
                        limit.option);
  }
  return text.empty() ? text : text + ')';
}

/// The operating system's text for an error number, with the limits of this process that cause such
/// an error.
[[nodiscard]] inline std::string error_text(int error) {
  std::string text = std::generic_category().message(error);
  switch (error) {
    case EFBIG: return text + limits_text({RLIMIT_FSIZE});
    case EMFILE: return text + limits_text({RLIMIT_NOFILE});
    case ENOMEM: return text + limits_text({RLIMIT_AS, RLIMIT_DATA});
    default: return text;
  }
}

/// The limit that ends processes with this signal, in parentheses after a space, and the option of
/// `ulimit` that raises it; "" for other signals.
[[nodiscard]] inline std::string limit_behind_signal(int signal) {
  if (signal == SIGXCPU) return " (it has used the processor time of RLIMIT_CPU, `ulimit -t`)";
  if (signal == SIGXFSZ)
    return " (it has written a file of more bytes than RLIMIT_FSIZE, `ulimit -f`)";
  return {};
}

/// While this object lives, a call of this thread that would make a file larger than RLIMIT_FSIZE
/// fails with EFBIG. Otherwise the kernel would end the process with SIGXFSZ. The object blocks the
/// signal in this thread. It keeps the program's handler, which belongs to all threads.
class FileSizeErrors {
 public:
  FileSizeErrors() noexcept {
    const sigset_t signal = file_size_signal();
    ::pthread_sigmask(SIG_BLOCK, &signal, &before_);
  }
  // The kernel sends the signal to the thread that makes the call, so a signal that is pending now
  // belongs to a call that has failed. If the thread had blocked the signal before, it stays
  // pending, as it would without this object.
  ~FileSizeErrors() {
    if (::sigismember(&before_, SIGXFSZ) != 0) return;
    const int error = errno;  // the caller may read errno after this destructor
    const sigset_t signal = file_size_signal();
    const timespec now{};
    while (::sigtimedwait(&signal, nullptr, &now) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  FileSizeErrors(const FileSizeErrors&) = delete;
  FileSizeErrors& operator=(const FileSizeErrors&) = delete;

 private:
  static sigset_t file_size_signal() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGXFSZ);
    return set;
  }

  sigset_t before_{};  // the signals that the thread had blocked
};

}  // namespace kolo::internal
