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
  /// Zeros, none of them reserved yet: what is not used takes no memory. See `reserve`.
  [[nodiscard]] static SharedMemory create_sparse(std::size_t bytes);
  /// Another's, of which `fd` came here; it must have as many bytes. Throws BackendError.
  [[nodiscard]] static SharedMemory map(FileDescriptor fd, std::size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// Makes sure that these pages can be written. False if there is no memory for them.
  [[nodiscard]] bool reserve(std::size_t offset, std::size_t bytes) const;
  /// Gives the pages back; they are zeros again.
  void give_back(std::size_t offset, std::size_t bytes) const;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  SharedMemory(FileDescriptor fd, std::size_t bytes);
  static FileDescriptor open(std::size_t bytes);

  FileDescriptor fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kolo::node
