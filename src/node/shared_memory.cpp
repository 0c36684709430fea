#include "node/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "kolo/error.hpp"
#include "node/system_error.hpp"

namespace kolo::node {

SharedMemory SharedMemory::create(std::size_t bytes) {
  FileDescriptor fd(::memfd_create("kolo", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) throw_system_error("memfd_create");
  const auto length = static_cast<off_t>(bytes);
  if (::ftruncate(fd.get(), length) != 0) throw_system_error("ftruncate of a shared segment");
  if (::fallocate(fd.get(), 0, 0, length) != 0) throw_system_error("fallocate of a shared segment");
  // Nobody can make it shorter under those that map it.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw_system_error("sealing a shared segment");
  return {std::move(fd), bytes};
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
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) throw_system_error("mmap of a shared segment");
  data_ = static_cast<std::byte*>(memory);
  ::madvise(memory, bytes, MADV_HUGEPAGE);
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
