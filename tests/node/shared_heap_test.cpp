// SPDX-License-Identifier: Apache-2.0
#include "node/shared_memory.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "kolo/error.hpp"

namespace kolo::internal::node {
namespace {

const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

TEST(SharedHeap, GivesBlocksThatDoNotOverlapAndCanBeWritten) {
  SharedHeap heap(8 * page_bytes);
  auto* const a = static_cast<std::byte*>(heap.allocate(1));
  auto* const b = static_cast<std::byte*>(heap.allocate(page_bytes + 1));
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  std::memset(a, 1, page_bytes);
  std::memset(b, 2, 2 * page_bytes);
  EXPECT_EQ(a[page_bytes - 1], std::byte{1});
  EXPECT_TRUE(heap.contains(a));
  EXPECT_TRUE(heap.contains(b + 2 * page_bytes - 1));
  EXPECT_FALSE(heap.contains(&heap));
  EXPECT_FALSE(heap.contains(heap.memory().data() + heap.memory().size()));
}

TEST(SharedHeap, HasNoMoreThanItWasMadeWith) {
  SharedHeap heap(3 * page_bytes);
  EXPECT_EQ(heap.allocate(4 * page_bytes), nullptr);
  EXPECT_NE(heap.allocate(3 * page_bytes), nullptr);
  EXPECT_EQ(heap.allocate(1), nullptr);
}

TEST(SharedHeap, WhatIsGivenBackInAnyOrderIsOneBlockAgain) {
  SharedHeap heap(4 * page_bytes);
  const std::vector<std::vector<std::size_t>> orders{
      {0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}};
  for (const auto& order : orders) {
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(heap.allocate(page_bytes));
    EXPECT_EQ(heap.allocate(1), nullptr);
    for (const std::size_t i : order) heap.deallocate(blocks[i], page_bytes);
    void* const whole = heap.allocate(4 * page_bytes);
    ASSERT_NE(whole, nullptr);
    heap.deallocate(whole, 4 * page_bytes);
  }
}

TEST(SharedHeap, GivesZerosAgain) {
  SharedHeap heap(page_bytes);
  void* const first = heap.allocate(page_bytes);
  std::memset(first, 7, page_bytes);
  heap.deallocate(first, page_bytes);
  const auto* const second = static_cast<const std::byte*>(heap.allocate(page_bytes));
  for (std::size_t i = 0; i < page_bytes; ++i) ASSERT_EQ(second[i], std::byte{0});
}

TEST(SharedHeap, TakesMemoryOnlyForWhatIsHandedOut) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer may leave no such range of addresses";
#endif
  SharedHeap heap(std::size_t{1} << 40);
  // No machine of this test has that.
  EXPECT_THAT([&] { (void)heap.allocate(std::size_t{1} << 39); },
              testing::ThrowsMessage<BackendError>(testing::HasSubstr("bytes are available")));
  EXPECT_NE(heap.allocate(page_bytes), nullptr);
}

/// The exit status of a child that does this.
template <typename Do>
int in_a_child(Do work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(SharedHeap, AForkedChildHasCopies) {
  SharedHeap heap(8 * page_bytes);
  auto* const block = static_cast<char*>(heap.allocate(3 * page_bytes));
  std::memset(block, 'p', 3 * page_bytes);
  const SharedMemory other = SharedMemory::create(page_bytes);
  std::memset(other.data(), 1, page_bytes);
  const int status = in_a_child([&] {
    if (block[0] != 'p') return 2;  // it can read what its parent has
    block[page_bytes] = 'c';
    if (block[page_bytes] != 'c') return 3;
    if (heap.allocate(1) != nullptr) return 4;
    heap.deallocate(block, 3 * page_bytes);
    other.data()[0] = std::byte{2};
    heap.~SharedHeap();
    return 0;
  });
  EXPECT_EQ(status, 0);
  for (std::size_t i = 0; i < 3 * page_bytes; ++i) ASSERT_EQ(block[i], 'p') << i;
  EXPECT_EQ(other.data()[0], std::byte{1});
  EXPECT_NE(heap.allocate(5 * page_bytes), nullptr);
  EXPECT_EQ(heap.allocate(1), nullptr) << "the block was given back";
}

// Pages are not copied at the fork: a child that needs what was there copies it before.
TEST(SharedHeap, AForkedChildSeesItsParentsMemoryUntilItWritesAPage) {
  SharedHeap heap(8 * page_bytes);
  auto* const block = static_cast<char*>(heap.allocate(2 * page_bytes));
  std::memset(block, 'p', 2 * page_bytes);
  std::array<int, 2> to_child{};
  std::array<int, 2> to_parent{};
  ASSERT_EQ(::pipe2(to_child.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(to_parent.data(), O_CLOEXEC), 0);
  const auto tell = [](const std::array<int, 2>& pipe) { return ::write(pipe[1], "1", 1) == 1; };
  const auto await = [](const std::array<int, 2>& pipe) {
    char one = 0;
    return ::read(pipe[0], &one, 1) == 1;
  };
  const pid_t child = ::fork();
  if (child == 0) {
    block[page_bytes] = 'c';
    if (!tell(to_parent) || !await(to_child)) ::_exit(2);
    if (block[0] != 'q' || block[page_bytes] != 'c' || block[page_bytes + 1] != 'p') ::_exit(3);
    if (!tell(to_parent) || !await(to_child)) ::_exit(4);
    ::_exit(block[0] == 0 && block[page_bytes] == 'c' ? 0 : 5);
  }
  EXPECT_TRUE(await(to_parent));
  std::memset(block, 'q', 2 * page_bytes);
  EXPECT_TRUE(tell(to_child));
  EXPECT_TRUE(await(to_parent));
  heap.deallocate(block, 2 * page_bytes);
  EXPECT_TRUE(tell(to_child));
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(end);
}

TEST(SharedHeap, AForkedChildDoesNotWaitForALockOfItsParent) {
  SharedHeap heap(4 * page_bytes);
  std::atomic<bool> ended{false};
  std::thread busy([&] {
    while (!ended) heap.deallocate(heap.allocate(page_bytes), page_bytes);
  });
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(in_a_child([&] { return heap.allocate(1) == nullptr ? 0 : 1; }), 0);
  ended = true;
  busy.join();
}

TEST(NotInherited, IsClosedInAChildWithItsNumberStillTaken) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const FileDescriptor read_end(pipe[0]);
  const FileDescriptor write_end(pipe[1]);
  const int status = in_a_child([&] { return ::write(write_end.get(), "1", 1) == 1 ? 0 : 1; });
  EXPECT_EQ(status, 0);
  NotInherited kept(write_end.get());
  const int without = in_a_child([&] {
    if (!kept.lost() || ::fcntl(write_end.get(), F_GETFD) < 0) return 2;
    return ::write(write_end.get(), "2", 1) == 1 ? 1 : 0;
  });
  EXPECT_EQ(without, 0);
  EXPECT_FALSE(kept.lost());
  kept = NotInherited();
  EXPECT_EQ(in_a_child([&] { return ::write(write_end.get(), "3", 1) == 1 ? 0 : 1; }), 0);
  std::array<char, 4> text{};
  EXPECT_EQ(::read(read_end.get(), text.data(), text.size()), 2);
  EXPECT_STREQ(text.data(), "13");
}

}  // namespace
}  // namespace kolo::internal::node
