// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <bit>
#include <cerrno>
#include <limits>
#include <string_view>
#include <system_error>

#include "training/bytes.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view magic = "KOLOCKPT";
constexpr std::uint32_t version = 2;
constexpr std::uint32_t oldest_version = 1;  // that can be read
constexpr std::size_t header_bytes = 48;
constexpr std::size_t header_checksum_at = header_bytes - sizeof(std::uint32_t);

[[noreturn]] void fail_with_errno(const fs::path& path, const char* what) {
  const std::string reason = std::generic_category().message(errno);
  throw CheckpointError(CheckpointFault::io, path,
                        fmt::format("cannot {} checkpoint '{}': {}", what, path.string(), reason));
}

class File {
 public:
  File(const fs::path& path, int flags, const char* purpose)
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)), path_(path), purpose_(purpose) {
    if (descriptor_ < 0) fail_with_errno(path_, purpose_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ::ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_with_errno(path_, purpose_);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  // Returns fewer than `wanted` bytes only at the end of the file.
  [[nodiscard]] std::string read(std::size_t wanted) {
    std::string bytes(wanted, '\0');
    std::size_t have = 0;
    while (have < wanted) {
      const ::ssize_t got = ::read(descriptor_, bytes.data() + have, wanted - have);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_with_errno(path_, purpose_);
      if (got == 0) break;
      have += static_cast<std::size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }

  void flush_to_disk() {
    if (::fsync(descriptor_) != 0) fail_with_errno(path_, purpose_);
  }

  // Some file systems report only at close that the disk is full.
  void close() {
    const int descriptor = std::exchange(descriptor_, -1);
    if (::close(descriptor) != 0) fail_with_errno(path_, purpose_);
  }

 private:
  int descriptor_;
  fs::path path_;
  const char* purpose_;
};

std::string header_of(std::int64_t step, const std::optional<double>& metric,
                      const std::string& payload, std::uint32_t serial) {
  std::string bytes(magic);
  append_little_endian(bytes, version);
  append_little_endian(bytes, (serial << 1) | std::uint32_t{metric ? 1U : 0U});
  append_little_endian(bytes, static_cast<std::uint64_t>(step));
  append_little_endian(bytes, std::bit_cast<std::uint64_t>(metric.value_or(0.0)));
  append_little_endian(bytes, std::uint64_t{payload.size()});
  append_little_endian(bytes, crc32(payload));
  append_little_endian(bytes, crc32(bytes));
  return bytes;
}

[[noreturn]] void refuse(const fs::path& path, CheckpointFault fault, const std::string& why) {
  throw CheckpointError(fault, path, fmt::format("checkpoint '{}' {}", path.string(), why));
}

CheckpointHeader parse_header(const std::string& bytes, const fs::path& path) {
  // The order of the checks decides which fault is reported: a short file with the right start was
  // cut off, and the version is believed only once the checksum is right.
  const std::string_view view = bytes;
  if (!view.starts_with(magic.substr(0, view.size()))) {
    refuse(path, CheckpointFault::foreign, "is not a Kolo checkpoint");
  }
  if (view.size() < header_bytes) {
    refuse(path, CheckpointFault::truncated,
           fmt::format("is truncated: it has {} bytes, its header alone has {}", view.size(),
                       header_bytes));
  }
  const auto checksum = from_little_endian<std::uint32_t>(view.substr(header_checksum_at));
  if (checksum != crc32(view.substr(0, header_checksum_at))) {
    refuse(path, CheckpointFault::corrupt, "is corrupt: the checksum of its header is wrong");
  }
  const auto its_version = from_little_endian<std::uint32_t>(view.substr(8));
  if (its_version < oldest_version || its_version > version) {
    refuse(path, CheckpointFault::foreign,
           fmt::format("is of version {}; this library reads versions {} to {}", its_version,
                       oldest_version, version));
  }
  CheckpointHeader header;
  const auto flags = from_little_endian<std::uint32_t>(view.substr(12));
  const bool has_metric = (flags & 1U) != 0;
  header.serial = flags >> 1;
  header.step = static_cast<std::int64_t>(from_little_endian<std::uint64_t>(view.substr(16)));
  const auto metric = std::bit_cast<double>(from_little_endian<std::uint64_t>(view.substr(24)));
  if (has_metric) header.metric = metric;
  header.payload_bytes = from_little_endian<std::uint64_t>(view.substr(32));
  header.payload_checksum = from_little_endian<std::uint32_t>(view.substr(40));
  return header;
}

void require_length(const CheckpointHeader& header, const fs::path& path) {
  std::error_code error;
  const std::uintmax_t length = fs::file_size(path, error);
  if (error) {
    refuse(path, CheckpointFault::io, "cannot be read: " + error.message());
  }
  if (header.payload_bytes > std::numeric_limits<std::uint64_t>::max() - header_bytes) {
    refuse(path, CheckpointFault::corrupt, "is corrupt: its header states an impossible length");
  }
  const std::uintmax_t wanted = header_bytes + header.payload_bytes;
  if (length < wanted) {
    refuse(path, CheckpointFault::truncated,
           fmt::format("is truncated: it has {} of {} bytes", length, wanted));
  }
  if (length > wanted) {
    refuse(path, CheckpointFault::corrupt,
           fmt::format("is corrupt: it has {} bytes instead of {}", length, wanted));
  }
}

File open_to_read(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status) && (!error || error == std::errc::no_such_file_or_directory)) {
    throw CheckpointError(CheckpointFault::missing, path,
                          fmt::format("there is no checkpoint '{}'", path.string()));
  }
  return {path, O_RDONLY, "read"};
}

CheckpointHeader read_header(File& file, const fs::path& path) {
  const CheckpointHeader header = parse_header(file.read(header_bytes), path);
  require_length(header, path);
  return header;
}

void write_and_flush(const fs::path& path, const std::string& header, const std::string& payload) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC, "write");
  file.write(header);
  file.write(payload);
  file.flush_to_disk();
  file.close();
}

// A renamed file survives a crash of the machine only once its directory is on the disk too. Errors
// are ignored: some file systems cannot flush directories, and the file itself is complete.
void flush_directory(const fs::path& path) {
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

std::uint32_t crc32(std::string_view bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(
      ::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

fs::path unfinished_name(const fs::path& path) { return path.string() + ".part"; }

void write_checkpoint(const fs::path& path, std::int64_t step, const std::optional<double>& metric,
                      const std::string& payload, std::uint32_t serial) {
  const fs::path unfinished = unfinished_name(path);
  try {
    // The data must be on the disk before the rename: otherwise a crash can leave the final name
    // on an empty file.
    write_and_flush(unfinished, header_of(step, metric, payload, serial), payload);
    if (::rename(unfinished.c_str(), path.c_str()) != 0) fail_with_errno(path, "rename");
  } catch (const CheckpointError&) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw;
  }
  flush_directory(path);
}

CheckpointHeader read_checkpoint_header(const fs::path& path) {
  File file = open_to_read(path);
  return read_header(file, path);
}

CheckpointContents read_checkpoint(const fs::path& path) {
  File file = open_to_read(path);
  CheckpointContents contents{.header = read_header(file, path), .payload = {}};
  contents.payload = file.read(contents.header.payload_bytes);
  if (contents.payload.size() != contents.header.payload_bytes) {
    refuse(path, CheckpointFault::truncated, "is truncated: it shrank while it was read");
  }
  if (crc32(contents.payload) != contents.header.payload_checksum) {
    refuse(path, CheckpointFault::corrupt, "is corrupt: its checksum is wrong");
  }
  return contents;
}

}  // namespace kolo::internal
