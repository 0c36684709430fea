// SPDX-License-Identifier: Apache-2.0
#include "node/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::internal::node {

namespace {

constexpr std::size_t page = 4096;

std::size_t pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

/// What the host can give without swapping, in bytes; unlimited if not known.
std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::size_t kilobytes = 0;
  while (file >> name >> kilobytes) {
    if (name == "MemAvailable:") return kilobytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::numeric_limits<std::size_t>::max();
}

}  // namespace

SharedMemory SharedMemory::create_sparse(std::size_t bytes) {
  FileDescriptor fd(::memfd_create("kolo", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) throw_system_error("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    throw_system_error("ftruncate of a shared segment");
  // No process can shrink it while others map it.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw_system_error("sealing a shared segment");
  return {std::move(fd), bytes};
}

SharedMemory SharedMemory::create(std::size_t bytes) {
  SharedMemory memory = create_sparse(bytes);
  if (!memory.reserve(0, bytes)) throw_system_error("fallocate of a shared segment");
  return memory;
}

bool SharedMemory::reserve(std::size_t offset, std::size_t bytes) const {
  // The kernel would end processes instead of refusing.
  if (bytes > available_memory()) {
    errno = ENOMEM;
    return false;
  }
  return ::fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

void SharedMemory::give_back(std::size_t offset, std::size_t bytes) const {
  ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
}

SharedMemory SharedMemory::map(FileDescriptor fd, std::size_t bytes) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw_system_error("fstat of a shared segment");
  if (status.st_size != static_cast<off_t>(bytes))
    throw BackendError("a shared segment has another size than this rank's");
  return {std::move(fd), bytes};
}

SharedMemory::SharedMemory(FileDescriptor fd, std::size_t bytes) : fd_(std::move(fd)) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
  if (memory == MAP_FAILED) throw_system_error("mmap of a shared segment");
  data_ = {static_cast<std::byte*>(memory), Unmap{bytes}};
  // Both are hints. A core dump without these pages is smaller by the memory of the whole host.
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  ::madvise(memory, bytes, MADV_DONTDUMP);
}

void SharedMemory::Unmap::operator()(std::byte* data) const { ::munmap(data, bytes); }

SharedHeap::SharedHeap(std::size_t bytes) : memory_(SharedMemory::create_sparse(pages(bytes))) {
  free_.emplace(0, memory_.size());
}

void* SharedHeap::allocate(std::size_t bytes) {
  const std::size_t wanted = pages(bytes);
  const std::lock_guard lock(mutex_);
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const auto [offset, size] = *block;
    if (size < wanted) continue;
    if (!memory_.reserve(offset, wanted)) return nullptr;
    free_.erase(block);
    if (size > wanted) free_.emplace(offset + wanted, size - wanted);
    return memory_.data() + offset;
  }
  return nullptr;
}

void SharedHeap::deallocate(void* block, std::size_t bytes) noexcept {
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(block) - memory_.data());
  const std::size_t size = pages(bytes);
  const std::lock_guard lock(mutex_);
  // Before the block is free, or its pages might go while another thread has it.
  memory_.give_back(offset, size);
  auto freed = free_.emplace(offset, size).first;
  const auto after = std::next(freed);
  if (after != free_.end() && freed->first + freed->second == after->first) {
    freed->second += after->second;
    free_.erase(after);
  }
  if (freed == free_.begin()) return;
  const auto before = std::prev(freed);
  if (before->first + before->second == freed->first) {
    before->second += freed->second;
    free_.erase(freed);
  }
}

bool SharedHeap::contains(const void* place) const {
  const std::less_equal<> not_after;
  const std::less<> before;
  return not_after(static_cast<const void*>(memory_.data()), place) &&
         before(place, static_cast<const void*>(memory_.data() + memory_.size()));
}

}  // namespace kolo::internal::node
