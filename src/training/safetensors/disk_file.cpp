// SPDX-License-Identifier: Apache-2.0
#include "training/safetensors/disk_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

#include "base/process_limits.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* unfinished_extension = ".part";

[[noreturn]] void throw_errno(const fs::path& path, const std::string& kind, const char* purpose) {
  throw CheckpointError(
      CheckpointFault::io, path,
      fmt::format("cannot {} {} '{}': {}", purpose, kind, path.string(), error_text(errno)));
}

}  // namespace

// A renamed file survives a crash of the machine only once its directory is on the disk too. Errors
// are ignored: some file systems cannot flush directories, and the file itself is complete.
void flush_directory_of(const fs::path& path) {
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

File::File(const fs::path& path, int flags, const char* purpose, std::string kind)
    : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)),
      path_(path),
      purpose_(purpose),
      kind_(std::move(kind)) {
  if (descriptor_ < 0) fail_with_errno();
  struct ::stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    const int error = errno;
    ::close(descriptor_);  // the destructor does not run
    errno = error;
    fail_with_errno();
  }
  identity_ = {.device = status.st_dev,
               .number = status.st_ino,
               .bytes = status.st_size,
               .seconds = status.st_mtim.tv_sec,
               .nanoseconds = status.st_mtim.tv_nsec};
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      purpose_(other.purpose_),
      kind_(std::move(other.kind_)),
      identity_(other.identity_) {}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void File::write(std::string_view bytes) {
  const FileSizeErrors errors;
  while (!bytes.empty()) {
    const ::ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno();
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void File::write_at(std::uint64_t offset, std::string_view bytes) {
  if (::lseek(descriptor_, static_cast<::off_t>(offset), SEEK_SET) < 0) fail_with_errno();
  write(bytes);
}

void File::read(char* into, std::size_t bytes) {
  read_all(into, bytes,
           [&](char* to, std::size_t wanted) { return ::read(descriptor_, to, wanted); });
}

void File::read_at(std::uint64_t offset, char* into, std::size_t bytes) {
  char* const start = into;
  read_all(into, bytes, [&](char* to, std::size_t wanted) {
    return ::pread(descriptor_, to, wanted, static_cast<::off_t>(offset) + (to - start));
  });
}

template <typename ReadSome>
void File::read_all(char* into, std::size_t bytes, const ReadSome& read_some) {
  while (bytes > 0) {
    const ::ssize_t got = read_some(into, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_errno();
    // Callers compare lengths with the size of the file before they read.
    if (got == 0) refuse(CheckpointFault::truncated, "is truncated: it shrank while it was read");
    into += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

std::string File::read(std::size_t bytes) {
  std::string text(bytes, '\0');
  read(text.data(), bytes);
  return text;
}

std::uint64_t File::size() const {
  struct ::stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_with_errno();
  if (S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    fail_with_errno();
  }
  return static_cast<std::uint64_t>(status.st_size);
}

void File::flush_to_disk() {
  if (::fsync(descriptor_) != 0) fail_with_errno();
}

void File::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail_with_errno();
}

void File::refuse(CheckpointFault fault, const std::string& why) const {
  throw CheckpointError(fault, path_, fmt::format("{} '{}' {}", kind_, path_.string(), why));
}

void File::fail_with_errno() const { throw_errno(path_, kind_, purpose_); }

File open_to_read(const fs::path& path, const std::string& kind) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status) && (!error || error == std::errc::no_such_file_or_directory)) {
    throw CheckpointError(CheckpointFault::missing, path,
                          fmt::format("there is no {} '{}'", kind, path.string()));
  }
  // Opening a FIFO would wait for a writer.
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
    throw CheckpointError(CheckpointFault::foreign, path,
                          fmt::format("{} '{}' is not a regular file", kind, path.string()));
  }
  return {path, O_RDONLY, "read", kind};
}

fs::path unfinished_name(const fs::path& path) {
  std::random_device random;
  const std::uint64_t key = std::uint64_t{random()} << 32 | random();
  return fmt::format("{}.{:016x}{}", path.string(), key, unfinished_extension);
}

fs::path finished_name(fs::path path) {
  if (path.extension() != unfinished_extension) return {};
  path.replace_extension();
  const std::string key = path.extension().string();
  constexpr std::size_t length = 17;  // with the dot
  if (key.size() != length || key.find_first_not_of("0123456789abcdef", 1) != std::string::npos)
    return {};
  return path.replace_extension();
}

void write_file(const fs::path& path, const std::string& kind,
                const std::function<void(File&)>& write) {
  const fs::path unfinished = unfinished_name(path);
  try {
    // The data must be on the disk before the rename: otherwise a crash can leave the final name
    // on an empty file.
    File file(unfinished, O_WRONLY | O_CREAT | O_EXCL, "write", kind);
    write(file);
    file.flush_to_disk();
    file.close();
    if (::rename(unfinished.c_str(), path.c_str()) != 0) throw_errno(path, kind, "rename");
  } catch (...) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw;
  }
  flush_directory_of(path);
}

}  // namespace kolo::internal
