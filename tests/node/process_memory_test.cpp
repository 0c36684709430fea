// SPDX-License-Identifier: Apache-2.0
#include "node/process_memory.hpp"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "kolo/error.hpp"

namespace kolo::internal::node {
namespace {

std::uint64_t address(const void* place) { return reinterpret_cast<std::uintptr_t>(place); }

/// A child has the memory of its parent, each its own from the fork on.
class ProcessMemoryTest : public testing::Test {
 protected:
  ProcessMemoryTest() : child_(::fork()) {
    if (child_ == 0)
      for (;;) ::pause();
    process_ = OtherProcess(child_);
  }
  ~ProcessMemoryTest() override { end(); }

  void SetUp() override {
    if (!can_access_memory(process_, probed_address()))
      GTEST_SKIP() << "the kernel does not permit it";
  }

  void end() {
    if (child_ == 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }

  std::array<std::byte, 100> data_{};
  pid_t child_;
  OtherProcess process_{};
};

TEST_F(ProcessMemoryTest, IsReadAndWritten) {
  const std::array<std::byte, 3> written{std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_TRUE(write_memory(process_, written, address(&data_[7])));
  EXPECT_THAT(data_, testing::Each(std::byte{0}));
  std::array<std::byte, 100> read{};
  EXPECT_TRUE(read_memory(process_, address(data_.data()), read));
  EXPECT_EQ(read[6], std::byte{0});
  EXPECT_EQ(read[7], std::byte{1});
  EXPECT_EQ(read[9], std::byte{3});
}

TEST_F(ProcessMemoryTest, OfAProcessThatHasEndedIsGone) {
  end();
  EXPECT_FALSE(read_memory(process_, address(data_.data()), data_));
  EXPECT_FALSE(write_memory(process_, data_, address(data_.data())));
  EXPECT_FALSE(can_access_memory(process_, probed_address()));
}

TEST_F(ProcessMemoryTest, WhereThereIsNoneIsAnError) {
  EXPECT_THROW((void)read_memory(process_, 4096, data_), BackendError);
  EXPECT_THROW((void)write_memory(process_, data_, 4096), BackendError);
  EXPECT_FALSE(can_access_memory(process_, 4096));
  EXPECT_FALSE(can_access_memory(process_, address(data_.data())));  // another value
}

TEST(OwnMemory, IsAccessibleIfItCanBeRead) {
  constexpr std::size_t page = 65536;
  void* const pages =
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const std::span<const std::byte> memory(static_cast<std::byte*>(pages), 2 * page);
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(pages) + page, page, PROT_NONE), 0);
  EXPECT_FALSE(is_accessible(memory));
  EXPECT_TRUE(is_accessible({}));
  const bool permitted = is_accessible(std::as_bytes(std::span(&page, 1)));
  EXPECT_EQ(is_accessible(memory.first(page)), permitted);
  ::munmap(pages, 2 * page);
}

}  // namespace
}  // namespace kolo::internal::node
