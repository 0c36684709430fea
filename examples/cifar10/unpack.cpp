// SPDX-License-Identifier: Apache-2.0
#include "unpack.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

namespace cifar10 {
namespace {

namespace fs = std::filesystem;

struct FreeReader {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, FreeReader>;

// The place of an entry, which must be below the directory.
fs::path place_of(archive_entry* entry, const fs::path& directory) {
  const char* name = archive_entry_pathname(entry);
  const fs::path path = name != nullptr ? name : "";
  if (path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end()) {
    throw std::runtime_error(fmt::format("its entry '{}' leads elsewhere", path.string()));
  }
  const auto type = archive_entry_filetype(entry);
  const bool is_link = archive_entry_hardlink(entry) != nullptr;
  if (is_link || (type != AE_IFREG && type != AE_IFDIR)) {
    throw std::runtime_error(
        fmt::format("its entry '{}' is neither a file nor a directory", path.string()));
  }
  return directory / path;
}

void unpack_entries(const Reader& reader, const fs::path& directory) {
  archive_entry* entry = nullptr;
  for (;;) {
    const int status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) return;
    if (status != ARCHIVE_OK) throw std::runtime_error(archive_error_string(reader.get()));
    archive_entry_set_pathname(entry, place_of(entry, directory).c_str());
    if (archive_read_extract(reader.get(), entry, ARCHIVE_EXTRACT_TIME) != ARCHIVE_OK) {
      throw std::runtime_error(archive_error_string(reader.get()));
    }
  }
}

}  // namespace

void unpack(const fs::path& file, const fs::path& directory) {
  constexpr std::size_t block_bytes = 1 << 16;
  const Reader reader(archive_read_new());
  if (!reader) throw std::runtime_error("libarchive could not be started");
  try {
    const bool is_open =
        archive_read_support_filter_gzip(reader.get()) == ARCHIVE_OK &&
        archive_read_support_format_tar(reader.get()) == ARCHIVE_OK &&
        archive_read_open_filename(reader.get(), file.c_str(), block_bytes) == ARCHIVE_OK;
    if (!is_open) throw std::runtime_error(archive_error_string(reader.get()));
    unpack_entries(reader, directory);
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("cannot unpack '{}' into '{}': {}", file.string(),
                                         directory.string(), error.what()));
  }
}

}  // namespace cifar10
