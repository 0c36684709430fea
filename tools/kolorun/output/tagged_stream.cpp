// SPDX-License-Identifier: Apache-2.0
#include "tagged_stream.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <utility>

namespace kolorun {
namespace {

// A longer line is written in parts, each with a tag.
constexpr std::size_t max_line = 65536;
// Lines that other hosts have tagged stay whole up to this length.
constexpr std::size_t max_tagged_line = 1 << 20;
// Limits of `LastLines`, which the message about a failed process shows.
constexpr std::size_t max_last_bytes = 4096;
constexpr int max_last_lines = 20;
constexpr int max_reads = 16;  // per call, so that other streams get their turn

}  // namespace

void LastLines::add(std::string_view text) {
  text_ += text;
  // Rarely, so that the cost does not depend on the size of the pieces.
  if (text_.size() > 4 * max_last_bytes) text_.erase(0, text_.size() - max_last_bytes);
}

std::string LastLines::text() const {
  std::string_view last(text_);
  if (last.size() > max_last_bytes) last.remove_prefix(last.size() - max_last_bytes);
  while (last.ends_with('\n')) last.remove_suffix(1);
  std::size_t begin = last.size();
  for (int lines = 0; lines < max_last_lines && begin != std::string_view::npos; ++lines)
    begin = begin == 0 ? std::string_view::npos : last.rfind('\n', begin - 1);
  return std::string(begin == std::string_view::npos ? last : last.substr(begin + 1));
}

std::string LastLines::of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : 0;
  const auto length = std::min<std::streamoff>(size, max_last_bytes);
  std::string end(static_cast<std::size_t>(length), '\0');
  if (!file.seekg(size - length).read(end.data(), length)) return "";
  LastLines lines;
  lines.add(end);
  return lines.text();
}

TaggedStream::TaggedStream(kolo::internal::node::FileDescriptor from, Copies copies)
    : from_(std::move(from)), copies_(std::move(copies)) {
  ::fcntl(from_.get(), F_SETFL, O_NONBLOCK);
}

bool TaggedStream::copy(bool all) {
  if (is_held() && !all) return true;
  std::array<char, 16384> buffer;
  for (int i = 0; i < max_reads; ++i) {
    const ssize_t bytes = ::read(from_.get(), buffer.data(), buffer.size());
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    if (bytes == 0) return false;
    const std::string_view text(buffer.data(), static_cast<std::size_t>(bytes));
    if (copies_.last_lines) copies_.last_lines->add(text);
    if (copies_.file) copies_.file->add(text);
    if (!copies_.is_shown) continue;
    if (copies_.unit == Unit::any) {
      write_all(copies_.to, text);
      continue;
    }
    text_ += text;
    write_lines();
  }
  return true;
}

void TaggedStream::write_lines() {
  std::string lines;
  std::size_t begin = 0;
  for (std::size_t end = text_.find('\n'); end != std::string::npos;
       end = text_.find('\n', begin)) {
    lines += copies_.tag;
    lines.append(text_, begin, end + 1 - begin);
    begin = end + 1;
  }
  text_.erase(0, begin);
  const std::size_t most = copies_.tag.empty() ? max_tagged_line : max_line;
  while (text_.size() > most) {
    lines += copies_.tag + text_.substr(0, most) + '\n';
    text_.erase(0, most);
  }
  write_all(copies_.to, lines);
}

void TaggedStream::finish() {
  if (!text_.empty()) write_all(copies_.to, copies_.tag + text_ + '\n');
  text_.clear();
}

}  // namespace kolorun
