// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace kolorun {
namespace {

// A longer line is written in parts, with a tag each.
constexpr std::size_t max_line = 65536;
// What other hosts have tagged stays whole.
constexpr std::size_t max_tagged_line = 1 << 20;
constexpr int max_reads = 16;  // others wait

}  // namespace

void write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = ::write(to, text.data(), text.size());
    if (bytes >= 0) {
      text.remove_prefix(static_cast<std::size_t>(bytes));
    } else if (errno == EAGAIN) {
      pollfd waits{.fd = to, .events = POLLOUT, .revents = 0};
      ::poll(&waits, 1, -1);
    } else if (errno != EINTR) {
      return;  // nobody reads
    }
  }
}

TaggedStream::TaggedStream(kolo::internal::node::FileDescriptor from, int to, std::string tag,
                           Unit unit)
    : from_(std::move(from)), to_(to), tag_(std::move(tag)), unit_(unit) {
  ::fcntl(from_.get(), F_SETFL, O_NONBLOCK);
}

bool TaggedStream::copy() {
  std::array<char, 16384> buffer;
  for (int i = 0; i < max_reads; ++i) {
    const ssize_t bytes = ::read(from_.get(), buffer.data(), buffer.size());
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    if (bytes == 0) return false;
    const std::string_view text(buffer.data(), static_cast<std::size_t>(bytes));
    if (unit_ == Unit::any) {
      write_all(to_, text);
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
    lines += tag_;
    lines.append(text_, begin, end + 1 - begin);
    begin = end + 1;
  }
  text_.erase(0, begin);
  const std::size_t most = tag_.empty() ? max_tagged_line : max_line;
  while (text_.size() > most) {
    lines += tag_ + text_.substr(0, most) + '\n';
    text_.erase(0, most);
  }
  write_all(to_, lines);
}

void TaggedStream::finish() {
  if (!text_.empty()) write_all(to_, tag_ + text_ + '\n');
  text_.clear();
}

}  // namespace kolorun
