// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/timeline_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/format.hpp"
#include "base/process_limits.hpp"
#include "diagnostics/json_text.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::diagnostics {
namespace {

constexpr std::string_view beginning = "[\n";
constexpr std::string_view ending = "\n]\n";

int open_file(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

// The names are exchanged at each flush, and the program may change its working directory.
std::string absolute(const std::string& path) {
  std::error_code unknown;
  const auto full = std::filesystem::absolute(path, unknown);
  return unknown ? path : full.string();
}

bool is_regular(int descriptor) {
  struct ::stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

std::string refusal(const std::string& path) {
  return fmt::format("the timeline \"{}\" cannot be written: {}", path, error_text(errno));
}

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

std::string text_of(const Span& span) {
  if (span.text == nullptr || span.text->empty()) return "(no name)";
  return span.text->size() <= max_text ? *span.text : span.text->substr(0, max_text) + "...";
}

std::string batch_arguments(const Span& span) {
  return fmt::format(
      R"("args":{{"batch":{},"operation":"{}","operations":{},"bytes":{},"dtype":"{}","set":{}}})",
      span.batch, to_string(span.type), span.count, span.bytes, internal::to_string(span.dtype),
      span.set);
}

}  // namespace

TimelineFile::TimelineFile(const std::string& path)
    : path_(absolute(path)), second_path_(path_ + '~'), shown_{open_file(path_)} {
  if (shown_.descriptor < 0) throw InvalidArgument(refusal(path));
  // A pipe or a device cannot exchange names with a file.
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
    // At every moment, `path` names a file that ends with `ending`. The file that loses the name
    // lacks these events, and gets them at the next flush.
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

/// Overwrites the previous ending. With `last`, the text is followed by a new ending.
void TimelineFile::append(File& file, std::string_view events, bool last) {
  std::string text(events);
  if (last) text += ending;
  write(file, text, file.end);
  file.end += static_cast<std::int64_t>(events.size());
}

/// Continues after interruptions and partial writes. The first error ends all writing.
void TimelineFile::write(const File& file, std::string_view text, std::int64_t place) {
  const FileSizeErrors errors;
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

// ---- spans as events ----

TraceEvents::TraceEvents(TimelineFile& file, int rank) : file_(file), rank_(rank) {
  file_.add(fmt::format(
      R"({{"ph":"M","name":"process_name","pid":{0},"tid":0,"args":{{"name":"rank {0}"}}}})",
      rank_));
  file_.add(fmt::format(
      R"({{"ph":"M","name":"process_sort_index","pid":{0},"tid":0,"args":{{"sort_index":{0}}}}})",
      rank_));
}

void TraceEvents::add_event(const char* phase, std::uint32_t track, TimePoint time,
                            std::string_view rest) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_), R"({{"ph":"{}","pid":{},"tid":{},"ts":{:.3f},{}}})",
                 phase, rank_, track, microseconds(time.time_since_epoch()), rest);
  file_.add({line_.data(), line_.size()});
}

void TraceEvents::name_track(const Span& span) {
  if (!named_.insert(span.track).second) return;
  const std::uint32_t track = span.track;
  const std::string name =
      track >= first_named_track    ? text_of(span)
      : track >= first_shared_track ? fmt::format("operations {}", track - first_shared_track + 1)
      : track >= first_batch_track  ? fmt::format("batches {}", track - first_batch_track + 1)
      : track == dropped_track      ? "dropped"
                                    : "session";
  const auto add = [&](const char* what, const std::string& arguments) {
    file_.add(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what,
                          rank_, track, arguments));
  };
  add("thread_name", R"("name":)" + json_string(name));
  add("thread_sort_index", fmt::format(R"("sort_index":{})", track));
}

void TraceEvents::add(const Span& span) {
  name_track(span);
  switch (span.kind) {
    case Span::Kind::operation: return add_operation(span);
    case Span::Kind::batch_begin:
      return add_event(
          "B", span.track, span.begin,
          fmt::format(R"("name":"batch {}","cat":"batch",{})", span.batch, batch_arguments(span)));
    case Span::Kind::batch_end: return add_event("E", span.track, span.end, R"("cat":"batch")");
    case Span::Kind::phase:
      return add_event("X", span.track, span.begin,
                       fmt::format(R"("dur":{:.3f},"name":"{}","cat":"phase")",
                                   microseconds(span.end - span.begin), span.what));
    case Span::Kind::instant:
      return add_event(
          "i", span.track, span.begin,
          fmt::format(R"("s":"p","name":"{}","args":{{"text":{}}})", span.what,
                      json_string(span.text == nullptr ? std::string() : text_of(span))));
  }
}

/// One event for the negotiation and one for the execution. An operation without a batch, such as a
/// failed one, has only the first.
void TraceEvents::add_operation(const Span& span) {
  const bool executed = span.batch != no_batch;
  const auto arguments = [&] {
    return fmt::format(R"("args":{{"name":{},"bytes":{},"dtype":"{}","set":{}{}}})",
                       json_string(text_of(span)), span.bytes, internal::to_string(span.dtype),
                       span.set,
                       executed ? fmt::format(R"(,"batch":{})", span.batch)
                                : std::string(span.failed ? R"(,"failed":true)" : ""));
  };
  const TimePoint agreed = executed ? span.agreed : span.end;
  add_event("X", span.track, span.begin,
            fmt::format(R"("dur":{:.3f},"name":"NEGOTIATE","cat":"operation",{})",
                        microseconds(agreed - span.begin), arguments()));
  if (!executed) return;
  add_event("X", span.track, agreed,
            fmt::format(R"("dur":{:.3f},"name":"{}","cat":"operation",{})",
                        microseconds(span.end - agreed), to_string(span.type), arguments()));
}

void TraceEvents::add_dropped(TimePoint time, std::uint64_t dropped) {
  Span where;
  where.track = dropped_track;
  name_track(where);
  add_event("i", dropped_track, time,
            fmt::format(R"("s":"p","name":"{} spans were dropped so far","args":{{"dropped":{}}})",
                        dropped, dropped));
}

}  // namespace kolo::internal::diagnostics
