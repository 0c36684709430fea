// SPDX-License-Identifier: Apache-2.0
// Writes the flight record as a file of JSON lines, described in docs/diagnosing.md.

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>

#include "base/format.hpp"
#include "base/log.hpp"
#include "diagnostics/json_text.hpp"
#include "diagnostics/recorder.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::diagnostics {
namespace {

constexpr int flight_record_version = 1;

template <typename Time>
std::int64_t in_nanoseconds(Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

/// The lines of the file, and their number.
class Lines {
 public:
  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    text_.push_back('\n');
    ++count_;
  }

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] const fmt::memory_buffer& text() const { return text_; }

 private:
  fmt::memory_buffer text_{};
  std::size_t count_ = 0;
};

void add_header(Lines& lines, const RecorderOptions& session, const std::string& reason,
                const Recorder& recorder, bool forgot_names) {
  const Statistics statistics = recorder.statistics();
  lines.add(
      R"({{"kolo_flight_record":{},"session":"{:016x}","rank":{},"size":{},"host":{},"process":{},)"
      R"("reason":{},"ns":{},"wall_ns":{},"submitted":{},"finished":{},"failed":{},)"
      R"("events":{},"capacity":{},"forgot_names":{}}})",
      flight_record_version, session.session, session.rank, session.size, json_string(host_name()),
      ::getpid(), json_string(reason), in_nanoseconds(Clock::now()),
      in_nanoseconds(std::chrono::system_clock::now()), statistics.submitted, statistics.finished,
      statistics.failed, recorder.events().total(), recorder.events().capacity(), forgot_names);
}

void add_names(Lines& lines, const Names& names) {
  for (std::uint32_t id = 0; id < names.end(); ++id)
    if (names[id].text != nullptr)
      lines.add(R"({{"name":{},"text":{},"set":{},"round":{},"submitted":{}}})", id,
                json_string(*names[id].text), names[id].set, names[id].round, names[id].submitted);
}

// Pending operations have lines of their own: by the time of the record, the ring may have lost the
// submission of an operation that waits for long.
void add_pending(Lines& lines, const PendingOperation& one) {
  lines.add(
      R"({{"pending":{},"round":{},"count":{},"ns":{},"state":"{}","batch":{},"operation":"{}",)"
      R"("bytes":{},"details":{}}})",
      one.tag.name, one.tag.round, one.tag.count, in_nanoseconds(one.tag.submitted),
      one.executing ? "executing" : "negotiating",
      one.executing ? std::to_string(one.batch) : "null", to_string(one.descriptor->type),
      one.tag.bytes, json_string(to_string(*one.descriptor)));
}

void add_event(Lines& lines, const Event& event) {
  const std::string name = event.name == no_name ? "null" : std::to_string(event.name);
  const std::string batch = event.batch == no_batch ? "null" : std::to_string(event.batch);
  lines.add(R"({{"event":"{}","ns":{},"name":{},"round":{},"count":{},"batch":{},"set":{},)"
            R"("operation":"{}","dtype":"{}","bytes":{}}})",
            to_string(event.kind), in_nanoseconds(event.time), name, event.round, event.count,
            batch, event.set, to_string(event.type), internal::to_string(event.dtype), event.bytes);
}

[[noreturn]] void refuse(const std::string& path) {
  throw InvalidArgument(
      fmt::format("the flight record \"{}\" cannot be written: {}", path, std::strerror(errno)));
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

bool write_at(const std::string& path, const fmt::memory_buffer& text) {
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "we"));
  return file != nullptr && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
         std::fclose(file.release()) == 0;
}

/// The file appears complete or not at all. A device, a pipe or a link cannot be replaced by a
/// file, so the record is written into it directly.
void write_file(const std::string& path, const fmt::memory_buffer& text) {
  std::error_code unreadable;
  const auto type = std::filesystem::symlink_status(path, unreadable).type();
  const bool replaceable =
      type == std::filesystem::file_type::not_found || type == std::filesystem::file_type::regular;
  if (!replaceable && type != std::filesystem::file_type::none) {
    if (!write_at(path, text)) refuse(path);
    return;
  }
  const std::string part = path + ".part";
  if (write_at(part, text) && std::rename(part.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  std::remove(part.c_str());
  errno = error;
  refuse(path);
}

}  // namespace

void Recorder::fault(EventKind kind, const std::string& text, const Pending& pending,
                     TimePoint now) {
  note(kind, text, now);
  if (!expects_fault()) return;
  had_fault_ = true;
  write_or_warn(text, pending);
}

void Recorder::write_asked_for(const Pending& pending) const {
  if (options_.events > 0) write_or_warn("a signal asked for it", pending);
}

void Recorder::write_or_warn(const std::string& reason, const Pending& pending) const {
  try {
    const std::string path = write("", reason, pending);
    log(LogLevel::warning,
        "flight record written: " + path + " (kolo-diagnose reads those of all ranks)");
  } catch (const InvalidArgument& error) {
    log(LogLevel::warning, error.what());
  }
}

std::string Recorder::usual_path() const {
  const std::filesystem::path directory = options_.directory == "off" ? "." : options_.directory;
  std::error_code ignored;  // a failure shows when the file is created
  std::filesystem::create_directories(directory, ignored);
  return directory / flight_record_name(options_.session, options_.rank);
}

std::string Recorder::write(const std::string& path, const std::string& reason,
                            const Pending& pending) const {
  if (options_.events == 0)
    throw InvalidArgument("there is no flight record: the setting flight_recorder is 0");
  Lines lines;
  add_header(lines, options_, reason, *this, names_.losses() > 0);
  add_names(lines, names_);
  for (const PendingOperation& one : pending) add_pending(lines, one);
  for (const Note& note : notes_)
    lines.add(R"({{"note":"{}","ns":{},"text":{}}})", to_string(note.kind),
              in_nanoseconds(note.time), json_string(note.text));
  events_.for_each([&](const Event& event) { add_event(lines, event); });
  lines.add(R"({{"lines":{}}})", lines.count());
  std::string place = path.empty() ? usual_path() : path;
  write_file(place, lines.text());
  return place;
}

std::string flight_record_name(std::uint64_t session, int rank) {
  return fmt::format("kolo-flight-{:016x}-{}.jsonl", session, rank);
}

}  // namespace kolo::internal::diagnostics
