// SPDX-License-Identifier: Apache-2.0
// The file consists of lines of JSON, which docs/diagnosing.md describes.
#include "diagnostics/flight_record.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/process_limits.hpp"
#include "diagnostics/json_text.hpp"
#include "diagnostics/replace_file.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::diagnostics {
namespace {

constexpr int flight_record_version = 1;
constexpr std::size_t max_notes = 64;

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

void add_header(Lines& lines, const RecordedRank& recorded, const std::string& reason,
                const EventRing& events, const RecordedState& state) {
  lines.add(
      R"({{"kolo_flight_record":{},"session":"{:016x}","rank":{},"size":{},"host":{},"process":{},)"
      R"("reason":{},"ns":{},"wall_ns":{},"submitted":{},"finished":{},"failed":{},)"
      R"("events":{},"capacity":{},"forgot_names":{}}})",
      flight_record_version, recorded.session, recorded.rank, recorded.size,
      json_string(host_name()), ::getpid(), json_string(reason), in_nanoseconds(Clock::now()),
      in_nanoseconds(std::chrono::system_clock::now()), state.statistics.submitted,
      state.statistics.finished, state.statistics.failed, events.total(), events.capacity(),
      state.names.losses() > 0);
}

void add_names(Lines& lines, const Names& names) {
  for (std::uint32_t id = 0; id < names.end(); ++id)
    if (names[id].text != nullptr)
      lines.add(R"({{"name":{},"text":{},"set":{},"round":{},"submitted":{}}})", id,
                json_string(*names[id].text), names[id].set, names[id].round, names[id].submitted);
}

// Pending operations have lines of their own: by the time of the record, the ring may have lost the
// submission of an operation that has waited long.
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
      fmt::format("the flight record \"{}\" cannot be written: {}", path, error_text(errno)));
}

}  // namespace

FlightRecord::FlightRecord(const Settings& settings, const RecordedRank& recorded)
    : recorded_(recorded),
      directory_(settings.flight_recorder_dir),
      events_(static_cast<std::size_t>(settings.flight_recorder)),
      signal_(settings.flight_recorder_signal) {}

void FlightRecord::add_note(EventKind kind, const std::string& text, TimePoint now) {
  if (text.empty()) return;
  if (notes_.size() == max_notes) notes_.pop_front();
  notes_.push_back({now, kind, text});
}

void FlightRecord::write_fault(const std::string& reason, const RecordedState& state) {
  if (!expects_fault()) return;
  had_fault_ = true;
  write_or_warn(reason, state);
}

void FlightRecord::write_asked_for(const RecordedState& state) const {
  if (events_.capacity() > 0) write_or_warn("a signal asked for it", state);
}

void FlightRecord::write_or_warn(const std::string& reason, const RecordedState& state) const {
  try {
    const std::string path = write("", reason, state);
    log(LogLevel::warning,
        "flight record written: " + path + " (kolo-diagnose reads those of all ranks)");
  } catch (const InvalidArgument& error) {
    log(LogLevel::warning, error.what());
  }
}

std::string FlightRecord::default_path() const {
  const std::filesystem::path directory = directory_ == "off" ? "." : directory_;
  std::error_code ignored;  // opening the file reports the error
  std::filesystem::create_directories(directory, ignored);
  return directory / flight_record_name(recorded_.session, recorded_.rank);
}

std::string FlightRecord::write(const std::string& path, const std::string& reason,
                                const RecordedState& state) const {
  if (events_.capacity() == 0)
    throw InvalidArgument("there is no flight record: the setting flight_recorder is 0");
  Lines lines;
  add_header(lines, recorded_, reason, events_, state);
  add_names(lines, state.names);
  for (const PendingOperation& one : state.pending) add_pending(lines, one);
  for (const Note& note : notes_)
    lines.add(R"({{"note":"{}","ns":{},"text":{}}})", to_string(note.kind),
              in_nanoseconds(note.time), json_string(note.text));
  events_.for_each([&](const Event& event) { add_event(lines, event); });
  lines.add(R"({{"lines":{}}})", lines.count());
  std::string place = path.empty() ? default_path() : path;
  if (!replace_file(place, {lines.text().data(), lines.text().size()})) refuse(place);
  return place;
}

std::string flight_record_name(std::uint64_t session, int rank) {
  return fmt::format("kolo-flight-{:016x}-{}.jsonl", session, rank);
}

}  // namespace kolo::internal::diagnostics
