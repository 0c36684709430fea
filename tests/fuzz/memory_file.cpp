#include "memory_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace kolo::fuzz {
namespace {

void require_success(bool success) {
  if (!success) throw std::system_error(errno, std::generic_category(), "a file in memory");
}

}  // namespace

MemoryFile::MemoryFile() : file_(::memfd_create("kolo-fuzz", MFD_CLOEXEC)) {
  require_success(file_.valid());
  path_ = "/proc/self/fd/" + std::to_string(file_.get());
}

void MemoryFile::set(std::span<const std::uint8_t> bytes) {
  require_success(::ftruncate(file_.get(), 0) == 0);
  require_success(::pwrite(file_.get(), bytes.data(), bytes.size(), 0) ==
                  static_cast<ssize_t>(bytes.size()));
}

std::string MemoryFile::contents() const {
  std::string bytes(std::filesystem::file_size(path_), '\0');
  require_success(::pread(file_.get(), bytes.data(), bytes.size(), 0) ==
                  static_cast<ssize_t>(bytes.size()));
  return bytes;
}

}  // namespace kolo::fuzz
