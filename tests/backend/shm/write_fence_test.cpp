// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/write_fence.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <new>
#include <thread>

namespace kolo::internal::backend::shm {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

/// The gates of two ranks, in memory that a child shares with its parent.
class WriteFenceTest : public testing::Test {
 protected:
  WriteFenceTest()
      : memory_(::mmap(nullptr, 2 * sizeof(WriteGate), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        gates_(new (memory_) WriteGate[2]{}) {}
  ~WriteFenceTest() override { ::munmap(memory_, 2 * sizeof(WriteGate)); }

  [[nodiscard]] WriteFence fence_of(int index, const node::OtherProcess* other = nullptr) const {
    return {
        {{&gates_[0], index == 0 ? nullptr : other}, {&gates_[1], index == 1 ? nullptr : other}},
        index};
  }

  /// It enters a section, and stays there.
  [[nodiscard]] pid_t start_writer(int signal) const {
    const pid_t child = ::fork();
    if (child != 0) return child;
    WriteFence fence = fence_of(1);
    const WriteFence::Section section = fence.enter();
    if (signal != 0) ::raise(signal);
    for (;;) ::pause();
  }

  void await_section() const {
    while (gates_[1].sections.load() == 0) std::this_thread::yield();
  }

  static int signal_that_ended(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

  void* memory_;
  WriteGate* gates_;
};

TEST_F(WriteFenceTest, AWriterSeesThatAGateIsClosed) {
  WriteFence writer = fence_of(1);
  {
    const WriteFence::Section section = writer.enter();
    EXPECT_FALSE(writer.is_closed(0));
  }
  fence_of(0).close(hours(1));
  const WriteFence::Section section = writer.enter();
  EXPECT_TRUE(writer.is_closed(0));
  EXPECT_FALSE(writer.is_closed(1));
}

TEST_F(WriteFenceTest, ClosingWaitsForSectionsThatHaveBegun) {
  for (int round = 0; round < 100; ++round) {
    gates_[0].closed = 0;
    WriteFence writer = fence_of(1);
    std::atomic<bool> written{false};
    std::thread closing;
    {
      const WriteFence::Section section = writer.enter();
      ASSERT_FALSE(writer.is_closed(0));
      closing = std::thread([&] {
        fence_of(0).close(hours(1));
        EXPECT_TRUE(written);
      });
      while (!writer.is_closed(0)) std::this_thread::yield();
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      written = true;
    }
    closing.join();
  }
}

TEST_F(WriteFenceTest, ClosingDoesNotWaitForLaterSections) {
  WriteFence writer = fence_of(1);
  std::atomic<bool> closed{false};
  std::thread closing([&] {
    fence_of(0).close(hours(1));
    closed = true;
  });
  // One follows the other, so that one is always open.
  while (!closed) const WriteFence::Section section = writer.enter();
  closing.join();
}

TEST_F(WriteFenceTest, AProcessThatIsStoppedInASectionIsKilled) {
  const pid_t child = start_writer(SIGSTOP);
  await_section();
  const node::OtherProcess process(child);
  fence_of(0, &process).close(milliseconds(20));
  EXPECT_EQ(signal_that_ended(child), SIGKILL);
}

// It is slow, or dumps its memory.
TEST_F(WriteFenceTest, AProcessThatIsNotStoppedIsNotKilled) {
  const pid_t child = start_writer(0);
  await_section();
  const node::OtherProcess process(child);
  fence_of(0, &process).close(milliseconds(20));
  ::kill(child, SIGTERM);
  EXPECT_EQ(signal_that_ended(child), SIGTERM);
}

TEST_F(WriteFenceTest, ClosingDoesNotWaitForAProcessThatHasEnded) {
  const pid_t child = start_writer(SIGTERM);
  await_section();
  const node::OtherProcess process(child);
  fence_of(0, &process).close(hours(1));
  EXPECT_EQ(signal_that_ended(child), SIGTERM);
}

}  // namespace
}  // namespace kolo::internal::backend::shm
