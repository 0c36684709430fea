// SPDX-License-Identifier: Apache-2.0
#include "node/host_lock.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace kolo::internal::node {
namespace {

using namespace std::chrono_literals;

class HostLockTest : public testing::Test {
 protected:
  HostLockTest() { path_ = std::string(::mkdtemp(directory_.data())) + "/lock"; }
  ~HostLockTest() override { std::filesystem::remove_all(directory_); }

  /// Whether nobody holds it.
  [[nodiscard]] bool is_free() const {
    const FileDescriptor file = open();
    return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  }
  [[nodiscard]] FileDescriptor open() const {
    return FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
  }

  std::string directory_ = testing::TempDir() + "kolo_host_lock_XXXXXX";
  std::string path_;
};

TEST_F(HostLockTest, IsHeldAsLongAsItsGuard) {
  HostLock lock(path_, 1h, 1h);
  {
    const HostLock::Guard guard(lock);
    EXPECT_TRUE(guard.holds());
    EXPECT_FALSE(is_free());
  }
  EXPECT_TRUE(is_free());
  EXPECT_TRUE(HostLock::Guard(lock).holds());
}

TEST_F(HostLockTest, IsDoneWithoutWhereThereCanBeNoFile) {
  HostLock lock(directory_ + "/none/lock", 1h, 1h);
  EXPECT_FALSE(HostLock::Guard(lock).holds());
}

TEST_F(HostLockTest, OnAFileThatOthersCanOpenIsNotAwaited) {
  const FileDescriptor held = open();
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  ASSERT_EQ(::fchmod(held.get(), 0644), 0);
  HostLock lock(path_, 1h, 1h);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(HostLock::Guard(lock).holds());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr(path_));
}

TEST_F(HostLockTest, OnAFileOfAnotherUserIsNotAwaited) {
  const FileDescriptor held = open();
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  if (::fchown(held.get(), 65534, 65534) != 0) GTEST_SKIP() << "only root gives files away";
  HostLock lock(path_, 1h, 1h);
  EXPECT_FALSE(HostLock::Guard(lock).holds());
}

TEST_F(HostLockTest, OfAnotherIsAwaitedOnceAndReportedOnce) {
  const FileDescriptor other = open();
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  HostLock pausing(path_, 0s, 1h);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(HostLock::Guard(pausing).holds());
  ASSERT_EQ(::flock(other.get(), LOCK_UN), 0);
  // In the pause the file is not even looked at.
  EXPECT_FALSE(HostLock::Guard(pausing).holds());
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::AllOf(testing::HasSubstr("the lock of " + path_), testing::HasSubstr("lslocks")));

  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  HostLock impatient(path_, 0s, 0s);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(HostLock::Guard(impatient).holds());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("the lock of"));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(HostLock::Guard(impatient).holds());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(::flock(other.get(), LOCK_UN), 0);
  EXPECT_TRUE(HostLock::Guard(impatient).holds());
}

/// A child that lives until it is ended, or the process that forks it is.
class SleepingChild {
 public:
  SleepingChild() : pid_(::fork()) {
    if (pid_ == 0)
      for (;;) ::pause();
  }
  ~SleepingChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  SleepingChild(const SleepingChild&) = delete;
  SleepingChild& operator=(const SleepingChild&) = delete;

 private:
  pid_t pid_;
};

TEST_F(HostLockTest, IsNotKeptByAChild) {
  HostLock lock(path_, 1h, 1h);
  std::optional<HostLock::Guard> guard(lock);
  const SleepingChild child;
  guard.reset();
  EXPECT_TRUE(is_free());
}

TEST_F(HostLockTest, OfAParentThatIsKilledIsNotKeptByItsChild) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    HostLock lock(path_, 1h, 1h);
    const HostLock::Guard guard(lock);
    if (::fork() == 0) {
      const pid_t child = ::getpid();
      if (::write(pipe[1], &child, sizeof child) != ssize_t{sizeof child}) ::_exit(1);
    }
    for (;;) ::pause();
  }
  pid_t child = 0;
  EXPECT_EQ(::read(pipe[0], &child, sizeof child), ssize_t{sizeof child});
  EXPECT_FALSE(is_free());
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(is_free());
  if (child > 0) ::kill(child, SIGKILL);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

}  // namespace
}  // namespace kolo::internal::node
