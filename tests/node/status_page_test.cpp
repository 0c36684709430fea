// SPDX-License-Identifier: Apache-2.0
#include "node/status_page.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <mutex>
#include <thread>

#include "node/other_process.hpp"

namespace kolo::internal::node {
namespace {

std::vector<std::byte> bytes_of(std::size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

TEST(StatusPage, HoldsWhatWasWrittenLast) {
  const auto page = std::make_unique<StatusPage>();
  EXPECT_TRUE(page->read().empty());
  EXPECT_TRUE(page->write(bytes_of(5, 1)));
  EXPECT_EQ(page->read(), bytes_of(5, 1));
  EXPECT_TRUE(page->write(bytes_of(StatusPage::max_bytes, 2)));
  EXPECT_EQ(page->read(), bytes_of(StatusPage::max_bytes, 2));
  EXPECT_FALSE(page->write(bytes_of(StatusPage::max_bytes + 1, 3)));
  EXPECT_EQ(page->read(), bytes_of(StatusPage::max_bytes, 2));
  EXPECT_TRUE(page->write({}));
  EXPECT_TRUE(page->read().empty());
}

TEST(StatusPage, IsNeverReadInPart) {
  const auto page = std::make_unique<StatusPage>();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 0; !stop; ++i)
      (void)page->write(bytes_of(static_cast<std::size_t>(100 + i % 50), i % 50));
  });
  int read = 0;
  while (read < 20000) {
    const std::vector<std::byte> got = page->read();
    if (got.empty()) continue;
    ++read;
    const auto value = static_cast<int>(got.front());
    ASSERT_EQ(got, bytes_of(static_cast<std::size_t>(100 + value), value));
  }
  stop = true;
  writer.join();
}

/// A child process that waits for a signal.
class Child {
 public:
  Child() : process_(::fork()) {
    if (process_ != 0) return;
    for (;;) ::pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t process() const { return process_; }
  void stop() const {
    ::kill(process_, SIGSTOP);
    int status = 0;
    ::waitpid(process_, &status, WUNTRACED);
  }
  void go_on() const {
    ::kill(process_, SIGCONT);
    int status = 0;
    ::waitpid(process_, &status, WCONTINUED);
  }
  /// Leaves a zombie.
  void kill() const {
    ::kill(process_, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOWAIT);
  }
  void end() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  pid_t process_;
};

TEST(ProcessStates, AreKnownOfOthers) {
  EXPECT_EQ(process_state(::getpid()), ProcessState::alive);
  Child child;
  const pid_t process = child.process();
  child.stop();
  EXPECT_EQ(process_state(process), ProcessState::stopped);
  child.go_on();
  EXPECT_EQ(process_state(process), ProcessState::alive);
  child.kill();
  EXPECT_EQ(process_state(process), ProcessState::ended);
  child.end();
  EXPECT_EQ(process_state(process), ProcessState::ended);
}

TEST(OtherThreadsRun, IsTrueOfOneThatSpinsAndNotOfOneThatWaits) {
  std::atomic<bool> spin{true};
  std::atomic<bool> spins{false};
  std::mutex held;
  std::unique_lock lock(held);
  std::thread other([&] {
    spins = true;
    while (spin) {
    }
    const std::lock_guard waits(held);
  });
  while (!spins) std::this_thread::yield();
  EXPECT_TRUE(other_threads_run());
  spin = false;
  while (other_threads_run()) std::this_thread::yield();  // until it waits
  lock.unlock();
  other.join();
}

}  // namespace
}  // namespace kolo::internal::node
