// SPDX-License-Identifier: Apache-2.0
#include "node/shared_memory.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "../support/file_size_limit.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::node {
namespace {

constexpr std::size_t bytes = 100'000;

FileDescriptor another_of(const SharedMemory& memory) {
  return FileDescriptor(::fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0));
}

TEST(SharedMemory, IsZerosAtFirst) {
  const SharedMemory memory = SharedMemory::create(bytes);
  ASSERT_EQ(memory.size(), bytes);
  EXPECT_EQ(std::count(memory.data(), memory.data() + bytes, std::byte{0}), std::ptrdiff_t{bytes});
}

TEST(SharedMemory, BeyondTheLimitOfFilesIsAnError) {
  const FileSizeLimit limit(4096);
  try {
    static_cast<void>(SharedMemory::create(bytes));
    FAIL() << "no error";
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("RLIMIT_FSIZE of this process is 4096 bytes"));
  }
}

TEST(SharedMemory, IsSeenByAllWhoMapIt) {
  const SharedMemory memory = SharedMemory::create(bytes);
  const SharedMemory mapped = SharedMemory::map(another_of(memory), bytes);
  ASSERT_NE(mapped.data(), memory.data());
  memory.data()[0] = std::byte{1};
  mapped.data()[bytes - 1] = std::byte{2};
  EXPECT_EQ(mapped.data()[0], std::byte{1});
  EXPECT_EQ(memory.data()[bytes - 1], std::byte{2});
}

TEST(SharedMemory, OutlivesWhoMadeIt) {
  SharedMemory memory = SharedMemory::create(bytes);
  memory.data()[17] = std::byte{3};
  const SharedMemory mapped = SharedMemory::map(another_of(memory), bytes);
  memory = SharedMemory::create(1);
  EXPECT_EQ(mapped.data()[17], std::byte{3});
}

TEST(SharedMemory, OfAnotherSizeIsRefused) {
  const SharedMemory memory = SharedMemory::create(bytes);
  for (const std::size_t wrong : {bytes - 1, bytes + 1, std::size_t{1}})
    EXPECT_THAT([&] { (void)SharedMemory::map(another_of(memory), wrong); },
                testing::ThrowsMessage<BackendError>(testing::HasSubstr("another size")));
}

TEST(SharedMemory, ThatIsNoneIsRefused) {
  EXPECT_THROW((void)SharedMemory::map(FileDescriptor(), bytes), BackendError);
}

TEST(SharedMemory, KeepsItsLength) {
  const SharedMemory memory = SharedMemory::create(bytes);
  for (const off_t length : {0, static_cast<int>(bytes) - 1, static_cast<int>(bytes) + 1}) {
    EXPECT_EQ(::ftruncate(memory.fd(), length), -1);
    EXPECT_EQ(errno, EPERM);
  }
}

TEST(SharedMemory, CanBeMoved) {
  SharedMemory memory = SharedMemory::create(bytes);
  std::byte* const data = memory.data();
  SharedMemory moved(std::move(memory));
  EXPECT_EQ(moved.data(), data);
  SharedMemory assigned;
  EXPECT_EQ(assigned.data(), nullptr);
  assigned = std::move(moved);
  EXPECT_EQ(assigned.data(), data);
  EXPECT_EQ(assigned.size(), bytes);
  assigned.data()[bytes - 1] = std::byte{1};
}

TEST(SharedMemory, CannotBeMadeAProgram) {
  constexpr int seal_exec = 0x20;  // kernels from 6.3 on
  const SharedMemory memory = SharedMemory::create(bytes);
  constexpr unsigned noexec_seal = 8;
  const FileDescriptor probe(::memfd_create("probe", MFD_CLOEXEC | noexec_seal));
  if (!probe.valid()) GTEST_SKIP() << "this kernel does not know the flag";
  EXPECT_NE(::fcntl(memory.fd(), F_GET_SEALS) & seal_exec, 0);
  EXPECT_EQ(::fchmod(memory.fd(), 0777), -1);
}

TEST(SharedMemory, ThatCannotBeIsRefused) {
  constexpr auto more_than_any_file = std::numeric_limits<std::size_t>::max() - 4095;
  EXPECT_THROW((void)SharedMemory::create(more_than_any_file), BackendError);
}

}  // namespace
}  // namespace kolo::internal::node
