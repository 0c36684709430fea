// SPDX-License-Identifier: Apache-2.0
#include "base/process_limits.hpp"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../support/file_size_limit.hpp"

namespace kolo::internal {
namespace {

using testing::HasSubstr;

/// Makes a file larger than the limit. Returns errno.
int exceed() {
  const int file = ::memfd_create("test", MFD_CLOEXEC);
  const int error = ::ftruncate(file, 1 << 20) == 0 ? 0 : errno;
  ::close(file);
  return error;
}

bool is_pending() {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGXFSZ) == 1;
}

bool is_blocked() {
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return ::sigismember(&blocked, SIGXFSZ) == 1;
}

TEST(ProcessLimits, OfFilesAreErrorsAndNoSignals) {
  const FileSizeLimit limit(4096);
  {
    const FileSizeErrors errors;
    EXPECT_EQ(exceed(), EFBIG);
    EXPECT_EQ(exceed(), EFBIG);
    errno = EFBIG;
  }
  EXPECT_EQ(errno, EFBIG);
  EXPECT_FALSE(is_pending());
  EXPECT_FALSE(is_blocked());
}

TEST(ProcessLimits, LeaveASignalThatTheProgramBlocks) {
  const FileSizeLimit limit(4096);
  sigset_t signal;
  ::sigemptyset(&signal);
  ::sigaddset(&signal, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &signal, nullptr);
  {
    const FileSizeErrors errors;
    EXPECT_EQ(exceed(), EFBIG);
  }
  EXPECT_TRUE(is_pending());
  EXPECT_TRUE(is_blocked());
  const timespec now{};
  EXPECT_EQ(::sigtimedwait(&signal, nullptr, &now), SIGXFSZ);
  ::pthread_sigmask(SIG_UNBLOCK, &signal, nullptr);
}

TEST(ProcessLimits, OfPinnedMemoryIsNamed) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit low{.rlim_cur = 65536, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &low), 0);
  EXPECT_EQ(limits_text({RLIMIT_MEMLOCK}),
            " (RLIMIT_MEMLOCK of this process is 65536 bytes: raise it with `ulimit -l`)");
  ::setrlimit(RLIMIT_MEMLOCK, &before);
}

TEST(ProcessLimits, AreNamedInErrors) {
  const FileSizeLimit limit(4096);
  EXPECT_THAT(error_text(EFBIG), HasSubstr("RLIMIT_FSIZE of this process is 4096 bytes"));
  EXPECT_THAT(error_text(EFBIG), HasSubstr("ulimit -f"));
  EXPECT_THAT(error_text(EMFILE), HasSubstr("RLIMIT_NOFILE"));
  EXPECT_EQ(error_text(EINVAL), "Invalid argument");
  EXPECT_THAT(limit_behind_signal(SIGXCPU), HasSubstr("RLIMIT_CPU"));
  EXPECT_EQ(limit_behind_signal(SIGTERM), "");
}

}  // namespace
}  // namespace kolo::internal
