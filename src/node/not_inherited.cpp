// SPDX-License-Identifier: Apache-2.0
#include "node/not_inherited.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <unordered_set>

namespace kolo::internal::node {

struct NotInherited::Entry {
  int fd = -1;
  std::span<std::byte> memory{};
  InChild in_child = InChild::zeros;
  bool lost = false;  // set in a child, which has only one thread

  struct All {
    std::mutex mutex;  // held during a fork, so that the child finds `entries` consistent
    std::unordered_set<Entry*> entries;
  };

  /// Never destroyed: the process may fork while its statics are destroyed.
  static All& all() {
    static All& all = *new All;
    return all;
  }
  static void watch_forks() {
    static const int watched =
        ::pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); }, in_the_child);
    static_cast<void>(watched);
  }
  static void in_the_child();
  void replace_memory() const;
};

/// Makes system calls only: at the fork, another thread may have held the allocator's lock, which
/// no thread of the child would ever release.
void NotInherited::Entry::in_the_child() {
  const int nothing = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (Entry* const entry : all().entries) {
    entry->lost = true;
    if (!entry->memory.empty()) entry->replace_memory();
    // The number is not closed but replaced: the child's copies of this process's objects will
    // close it, and must not close a file that the child has opened since.
    if (entry->fd < 0) continue;
    if (nothing < 0 || ::dup3(nothing, entry->fd, O_CLOEXEC) < 0) ::close(entry->fd);
  }
  if (nothing >= 0) ::close(nothing);
  all().mutex.unlock();
}

void NotInherited::Entry::replace_memory() const {
  const bool keep = in_child == InChild::content;
  const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE | (keep ? 0 : MAP_ANONYMOUS);
  if (::mmap(memory.data(), memory.size(), PROT_READ | PROT_WRITE, flags, keep ? fd : -1, 0) ==
      MAP_FAILED)
    // The host cannot commit so much memory. A write to the pages ends the child, but not the job.
    ::mprotect(memory.data(), memory.size(), PROT_READ);
}

NotInherited::NotInherited(int fd) : NotInherited(fd, {}, InChild::zeros) {}

NotInherited::NotInherited(int fd, std::span<std::byte> memory, InChild in_child)
    : entry_(new Entry{.fd = fd, .memory = memory, .in_child = in_child}) {
  Entry::watch_forks();
  const std::lock_guard lock(Entry::all().mutex);
  Entry::all().entries.insert(entry_.get());
}

bool NotInherited::lost() const { return entry_ != nullptr && entry_->lost; }

void NotInherited::Forget::operator()(Entry* entry) const {
  {
    const std::lock_guard lock(Entry::all().mutex);
    Entry::all().entries.erase(entry);
  }
  delete entry;
}

}  // namespace kolo::internal::node
