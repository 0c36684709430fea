#include "node/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "node/system_error.hpp"

namespace kolo::node {

namespace {

/// What the host can give without swapping, in bytes; unlimited where it does not say.
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

FileDescriptor SharedMemory::open(std::size_t bytes) {
  FileDescriptor fd(::memfd_create("kolo", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) throw_system_error("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    throw_system_error("ftruncate of a shared segment");
  // Nobody can make it shorter under those that map it.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw_system_error("sealing a shared segment");
  return fd;
}

SharedMemory SharedMemory::create(std::size_t bytes) {
  SharedMemory memory = create_sparse(bytes);
  if (!memory.reserve(0, bytes)) throw_system_error("fallocate of a shared segment");
  return memory;
}

SharedMemory SharedMemory::create_sparse(std::size_t bytes) { return {open(bytes), bytes}; }

bool SharedMemory::reserve(std::size_t offset, std::size_t bytes) const {
  // The kernel would rather end processes than say no.
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

SharedMemory::SharedMemory(FileDescriptor fd, std::size_t bytes)
    : fd_(std::move(fd)), size_(bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
  if (memory == MAP_FAILED) throw_system_error("mmap of a shared segment");
  data_ = static_cast<std::byte*>(memory);
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  ::madvise(memory, bytes, MADV_DONTDUMP);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace kolo::node
