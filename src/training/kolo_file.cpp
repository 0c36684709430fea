// SPDX-License-Identifier: Apache-2.0
#include "training/kolo_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <string_view>

#include "kolo/error.hpp"
#include "training/bytes.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view magic = "KOLOCKPT";
constexpr std::uint32_t newest_version = 2;
constexpr std::size_t header_bytes = 48;
constexpr std::size_t header_checksum_at = header_bytes - sizeof(std::uint32_t);

struct KoloHeader {
  CheckpointHeader checkpoint{};
  std::uint64_t payload_bytes = 0;
  std::uint32_t payload_checksum = 0;
};

KoloHeader parse_kolo_header(std::string_view view, const File& file) {
  // The order of the checks decides which fault is reported: a short file with the right start was
  // cut off, and the version is believed only once the checksum is right.
  if (view.size() < header_bytes) {
    file.refuse(CheckpointFault::truncated,
                fmt::format("is truncated: it has {} bytes, its header alone has {}", view.size(),
                            header_bytes));
  }
  const auto checksum = from_little_endian<std::uint32_t>(view.substr(header_checksum_at));
  if (checksum != crc32(view.substr(0, header_checksum_at)))
    file.refuse(CheckpointFault::corrupt, "is corrupt: the checksum of its header is wrong");
  const auto its_version = from_little_endian<std::uint32_t>(view.substr(8));
  if (its_version < 1 || its_version > newest_version) {
    file.refuse(CheckpointFault::foreign,
                fmt::format("is of version {}; of this format, the library reads versions 1 to {}",
                            its_version, newest_version));
  }
  KoloHeader header;
  const auto flags = from_little_endian<std::uint32_t>(view.substr(12));
  header.checkpoint.serial = flags >> 1;
  header.checkpoint.step =
      static_cast<std::int64_t>(from_little_endian<std::uint64_t>(view.substr(16)));
  const auto metric = std::bit_cast<double>(from_little_endian<std::uint64_t>(view.substr(24)));
  if ((flags & 1U) != 0) header.checkpoint.metric = metric;
  header.payload_bytes = from_little_endian<std::uint64_t>(view.substr(32));
  header.payload_checksum = from_little_endian<std::uint32_t>(view.substr(40));
  return header;
}

void require_kolo_length(const KoloHeader& header, const File& file) {
  if (header.payload_bytes > std::numeric_limits<std::uint64_t>::max() - header_bytes) {
    file.refuse(CheckpointFault::corrupt, "is corrupt: its header states an impossible length");
  }
  const std::uint64_t length = file.size(), wanted = header_bytes + header.payload_bytes;
  if (length < wanted) {
    file.refuse(CheckpointFault::truncated,
                fmt::format("is truncated: it has {} of {} bytes", length, wanted));
  }
  if (length > wanted) {
    file.refuse(CheckpointFault::corrupt,
                fmt::format("is corrupt: it has {} bytes instead of {}", length, wanted));
  }
}

KoloHeader read_start(File& file) {
  const KoloHeader header =
      parse_kolo_header(file.read(std::min<std::uint64_t>(header_bytes, file.size())), file);
  require_kolo_length(header, file);
  return header;
}

}  // namespace

bool is_kolo_file(File& file) {
  const std::string start = file.read(std::min<std::uint64_t>(magic.size(), file.size()));
  return magic.starts_with(start);
}

CheckpointHeader read_kolo_file_header(const fs::path& path) {
  File file = open_to_read(path, checkpoint_kind);
  return read_start(file).checkpoint;
}

CheckpointContents read_kolo_file(const fs::path& path) {
  File file = open_to_read(path, checkpoint_kind);
  const KoloHeader header = read_start(file);
  const std::string payload = file.read(header.payload_bytes);
  if (crc32(payload) != header.payload_checksum)
    file.refuse(CheckpointFault::corrupt, "is corrupt: its checksum is wrong");
  try {
    return {.header = header.checkpoint, .payload = decode(payload)};
  } catch (const InvalidArgument& error) {
    file.refuse(CheckpointFault::corrupt, fmt::format("is corrupt: {}", error.what()));
  }
}

}  // namespace kolo::internal
