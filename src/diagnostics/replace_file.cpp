// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/replace_file.hpp"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/process_limits.hpp"

namespace kolo::internal::diagnostics {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

bool write_at(const std::string& path, const char* mode, std::string_view text) {
  const FileSizeErrors errors;
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), mode));
  return file != nullptr && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
         std::fclose(file.release()) == 0;
}

}  // namespace

bool replace_file(const std::string& path, std::string_view text) {
  std::error_code unreadable;
  const auto type = std::filesystem::symlink_status(path, unreadable).type();
  const bool replaceable =
      type == std::filesystem::file_type::not_found || type == std::filesystem::file_type::regular;
  if (!replaceable && type != std::filesystem::file_type::none) return write_at(path, "we", text);
  const std::string part = path + ".part";
  // A new file: where others can write, one of them could have left a link to another file.
  std::remove(part.c_str());
  if (write_at(part, "wxe", text) && std::rename(part.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  std::remove(part.c_str());
  errno = error;
  return false;
}

}  // namespace kolo::internal::diagnostics
