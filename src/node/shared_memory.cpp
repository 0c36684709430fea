// SPDX-License-Identifier: Apache-2.0
#include "node/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"
#include "node/host_lock.hpp"
#include "node/memory_limits.hpp"

namespace kolo::internal::node {

namespace {

/// The page size: 4 KiB on x86-64, up to 64 KiB on ARM64. Blocks are whole pages, since a block
/// that shares a page with another could not give its memory back.
std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t pages(std::size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

/// Creates an anonymous file. `noexec_seal` prevents its contents from being executed. Kernels
/// before 6.3 do not know the flag; later ones may refuse files without it (vm.memfd_noexec).
FileDescriptor create_file() {
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  constexpr unsigned noexec_seal = 8;  // MFD_NOEXEC_SEAL, which older headers lack
  FileDescriptor fd(::memfd_create("kolo", flags | noexec_seal));
  if (!fd.valid() && errno == EINVAL) fd = FileDescriptor(::memfd_create("kolo", flags));
  if (!fd.valid()) throw_system_error("memfd_create");
  return fd;
}

// The memory that reservations of shared memory leave free for private memory of the processes.
constexpr std::size_t margin = std::size_t{16} << 20;
// Reading the limits, which are in several files, takes longer than reserving a small block. So
// small blocks are only counted, and the limits are read again whenever their sum reaches this many
// bytes.
constexpr std::size_t max_unchecked = std::size_t{1} << 20;

// A file of each user: others could hold a shared one.
std::string lock_path() { return fmt::format("{}/kolo-{}.lock", meeting_directory(), ::geteuid()); }

/// The reservations of this process. Never destroyed: statics may still allocate.
struct Reservations {
  std::atomic<std::size_t> unchecked{max_unchecked};  // bytes since the limits were read
  // Ranks reserve memory at the same time, each for its gradients. With the lock they do so one
  // after the other, so that no rank counts on memory that another is about to reserve.
  HostLock one_at_a_time{lock_path(), std::chrono::seconds(10), std::chrono::minutes(1)};
};

Reservations& reservations() {
  static Reservations& all = *new Reservations;
  return all;
}

/// False if so little memory is left that the kernel would kill processes rather than refuse it.
bool memory_suffices(std::size_t bytes) {
  std::atomic<std::size_t>& unchecked = reservations().unchecked;
  if (bytes < max_unchecked && unchecked.fetch_add(bytes) + bytes < max_unchecked) return true;
  const std::size_t available = available_memory().bytes;
  const bool suffices = available > margin && bytes <= available - margin;
  unchecked = suffices ? 0 : max_unchecked;
  return suffices;
}

/// True for blocks up to the largest page size, which are reserved without the lock of the host.
bool is_small(std::size_t bytes) { return bytes <= std::size_t{64} << 10; }

std::string no_memory(std::size_t bytes, int error) {
  const AvailableMemory available = available_memory();
  return fmt::format("no shared memory of {} bytes: {}; {} bytes are available, as {} limits them",
                     bytes, error_text(error), available.bytes, available.limited_by);
}

}  // namespace

SharedMemory SharedMemory::create_sparse(std::size_t bytes, InChild in_child) {
  FileDescriptor fd = create_file();
  const FileSizeErrors errors;
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    throw_system_error("ftruncate of a shared segment");
  // The seals keep other processes from shrinking the file, which would make mapped pages fault.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw_system_error("sealing a shared segment");
  return {std::move(fd), bytes, in_child};
}

SharedMemory SharedMemory::create(std::size_t bytes) {
  SharedMemory memory = create_sparse(bytes);
  if (memory.reserve(0, bytes)) return memory;
  throw BackendError(no_memory(bytes, errno));
}

bool SharedMemory::reserve(std::size_t offset, std::size_t bytes) const {
  std::optional<HostLock::Guard> guard;
  if (!is_small(bytes)) guard.emplace(reservations().one_at_a_time);
  if (!memory_suffices(bytes)) {
    errno = ENOMEM;
    return false;
  }
  // The work is divided into chunks: before Linux 5.16, any signal ends the call and undoes what it
  // has done, so a profiler's signals could keep a long call from ever finishing.
  constexpr std::size_t max_chunk = std::size_t{16} << 20;
  const FileSizeErrors errors;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t chunk = std::min(bytes - done, max_chunk);
    if (::fallocate(fd_.get(), 0, static_cast<off_t>(offset + done), static_cast<off_t>(chunk)) ==
        0) {
      done += chunk;
    } else if (errno != EINTR) {
      const int error = errno;
      if (done > 0) give_back(offset, done);
      errno = error;
      return false;
    }
  }
  return true;
}

void SharedMemory::give_back(std::size_t offset, std::size_t bytes) const {
  while (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0 &&
         errno == EINTR) {
  }
}

SharedMemory SharedMemory::map(const FileDescriptor& fd, std::size_t bytes) {
  SharedMemory mapped = map(fd);
  if (mapped.size() != bytes)
    throw BackendError(fmt::format(
        "a shared segment has another size than this rank's, {} bytes instead of {}: all "
        "ranks of a host must have the same settings",
        mapped.size(), bytes));
  return mapped;
}

SharedMemory SharedMemory::map(const FileDescriptor& fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw_system_error("fstat of a shared segment");
  SharedMemory mapped;
  mapped.map(fd.get(), static_cast<std::size_t>(status.st_size), InChild::zeros, /*kept_fd=*/-1);
  return mapped;
}

SharedMemory::SharedMemory(FileDescriptor fd, std::size_t bytes, InChild in_child)
    : fd_(std::move(fd)) {
  map(fd_.get(), bytes, in_child, fd_.get());
}

void SharedMemory::map(int fd, std::size_t bytes, InChild in_child, int kept_fd) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) throw_system_error("mmap of a shared segment");
  auto* const data = static_cast<std::byte*>(memory);
  data_.reset(data);
  data_.get_deleter().bytes = bytes;
  data_.get_deleter().not_inherited = NotInherited(kept_fd, {data, bytes}, in_child);
  // Both calls are hints. The second keeps these pages out of core dumps, which would otherwise
  // contain the heaps of the whole host.
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  ::madvise(memory, bytes, MADV_DONTDUMP);
}

void SharedMemory::Unmap::operator()(std::byte* data) {
  not_inherited = {};  // before another mapping can take this address range
  ::munmap(data, bytes);
}

SharedHeap::SharedHeap(std::size_t bytes)
    : memory_(SharedMemory::create_sparse(pages(bytes), SharedMemory::InChild::content)) {
  free_.emplace(0, memory_.size());
}

void* SharedHeap::allocate(std::size_t bytes) {
  // In a forked child the mutex is unusable: another thread of the parent may have held it.
  if (memory_.lost()) return nullptr;
  const std::size_t wanted = pages(bytes);
  const std::optional<std::size_t> offset = take(wanted);
  if (!offset) return nullptr;
  // `mutex_` is not held here, since this may take long.
  if (memory_.reserve(*offset, wanted)) return memory_.data() + *offset;
  const int error = errno;
  {
    const std::lock_guard lock(mutex_);
    put_back(*offset, wanted);
  }
  // Falling back to private memory would not help: the kernel would kill the process on a write to
  // that memory.
  throw BackendError(no_memory(wanted, error));
}

void SharedHeap::deallocate(void* block, std::size_t bytes) noexcept {
  // In a forked child, the memory vanishes with the child.
  if (memory_.lost()) return;
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(block) - memory_.data());
  const std::size_t size = pages(bytes);
  // The pages are given back before the block is free: later, another thread might own the block.
  memory_.give_back(offset, size);
  const std::lock_guard lock(mutex_);
  put_back(offset, size);
}

std::optional<std::size_t> SharedHeap::take(std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto block =
      std::ranges::find_if(free_, [&](const auto& free) { return free.second >= size; });
  if (block == free_.end()) return std::nullopt;
  const auto [offset, found] = *block;
  free_.erase(block);
  if (found > size) free_.emplace(offset + size, found - size);
  return offset;
}

void SharedHeap::put_back(std::size_t offset, std::size_t size) {
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

void* allocate_reserved(std::size_t bytes) {
  void* const block = ::operator new(bytes, std::align_val_t(64));
  if (is_small(bytes)) return block;
  const HostLock::Guard guard(reservations().one_at_a_time);
  if (!memory_suffices(bytes)) {
    ::operator delete(block, std::align_val_t(64));
    throw BackendError(no_memory(bytes, ENOMEM));
  }
  // Touch every page, so that the kernel provides it now.
  auto* const place = static_cast<volatile char*>(block);
  for (std::size_t i = 0; i < bytes; i += page_bytes()) place[i] = 0;
  return block;
}

bool SharedHeap::contains(const void* place) const {
  const std::less_equal<> not_after;
  const std::less<> before;
  return not_after(static_cast<const void*>(memory_.data()), place) &&
         before(place, static_cast<const void*>(memory_.data() + memory_.size()));
}

}  // namespace kolo::internal::node
