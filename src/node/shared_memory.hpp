// Memory that several processes map.
#pragma once

#include <cstddef>

#include "node/file_descriptor.hpp"

namespace kolo::node {

/// Has no name in any file system: it is gone with the last process that maps it, however that
/// ends, and no limit of /dev/shm concerns it.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// Zeros. All of it is reserved, so that writing to it cannot fail later. Huge pages are asked
  /// for; nothing depends on them. Throws BackendError.
  [[nodiscard]] static SharedMemory create(std::size_t bytes);
  /// Another's, of which `fd` came here; it must have as many bytes. Throws BackendError.
  [[nodiscard]] static SharedMemory map(FileDescriptor fd, std::size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  SharedMemory(FileDescriptor fd, std::size_t bytes);

  FileDescriptor fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kolo::node
