#include "diagnostics/timeline_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::diagnostics {
namespace {

constexpr std::string_view beginning = "[\n";
constexpr std::string_view ending = "\n]\n";

int open_file(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

bool is_regular(int descriptor) {
  struct ::stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

std::string refusal(const std::string& path) {
  return fmt::format("the timeline \"{}\" cannot be written: {}", path, std::strerror(errno));
}

}  // namespace

TimelineFile::TimelineFile(const std::string& path)
    : path_(path), second_path_(path + '~'), shown_{open_file(path)} {
  if (shown_.descriptor < 0) throw InvalidArgument(refusal(path));
  if (is_regular(shown_.descriptor)) second_.descriptor = open_file(second_path_);
  append(shown_, beginning, /*last=*/true);
  missed_ = beginning;
}

TimelineFile::~TimelineFile() {
  finish();
  ::close(shown_.descriptor);
}

void TimelineFile::finish() {
  flush();
  give_up_second();
}

void TimelineFile::add(std::string_view event) {
  if (any_) {
    buffer_.push_back(',');
    buffer_.push_back('\n');
  }
  any_ = true;
  buffer_.append(event.data(), event.data() + event.size());
}

void TimelineFile::flush() {
  if (buffer_.size() == 0) return;
  const std::string_view events(buffer_.data(), buffer_.size());
  if (second_.descriptor >= 0) {
    append(second_, missed_, /*last=*/false);
    append(second_, events, /*last=*/true);
    if (::renameat2(AT_FDCWD, second_path_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) ==
        0) {
      std::swap(shown_, second_);
    } else {
      give_up_second();
      append(shown_, events, /*last=*/true);
    }
    missed_ = events;
  } else {
    append(shown_, events, /*last=*/true);
  }
  buffer_.clear();
}

/// Over the end that was there, and, if it is the last part, with an end of its own.
void TimelineFile::append(File& file, std::string_view events, bool last) {
  std::string text(events);
  if (last) text += ending;
  write(file, text, file.end);
  file.end += static_cast<std::int64_t>(events.size());
}

void TimelineFile::write(const File& file, std::string_view text, std::int64_t place) {
  while (error_.empty() && !text.empty()) {
    const ::ssize_t written = ::pwrite(file.descriptor, text.data(), text.size(), place);
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      place += written;
    } else if (errno != EINTR) {
      error_ = refusal(path_);
    }
  }
}

void TimelineFile::give_up_second() {
  if (second_.descriptor < 0) return;
  ::close(std::exchange(second_.descriptor, -1));
  ::unlink(second_path_.c_str());
}

}  // namespace kolo::diagnostics
