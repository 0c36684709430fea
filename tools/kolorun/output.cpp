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

// A longer line is written in parts.
constexpr std::size_t max_line = 65536;

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

TaggedStream::TaggedStream(kolo::internal::node::FileDescriptor from, int to, std::string tag)
    : from_(std::move(from)), to_(to), tag_(std::move(tag)) {
  ::fcntl(from_.get(), F_SETFL, O_NONBLOCK);
}

bool TaggedStream::copy() {
  std::array<char, 16384> buffer;
  while (true) {
    const ssize_t bytes = ::read(from_.get(), buffer.data(), buffer.size());
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    if (bytes == 0) return false;
    text_.append(buffer.data(), static_cast<std::size_t>(bytes));
    write_lines();
  }
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
  if (text_.size() > max_line) {
    lines += tag_ + text_ + '\n';
    text_.clear();
  }
  write_all(to_, lines);
}

void TaggedStream::finish() {
  if (!text_.empty()) write_all(to_, tag_ + text_ + '\n');
  text_.clear();
}

}  // namespace kolorun
