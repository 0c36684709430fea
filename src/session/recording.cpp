#include "session/recording.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <utility>

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"

namespace kolo::session {
namespace {

using diagnostics::Clock;
using diagnostics::EventKind;

/// A batch that is smaller takes so little time that the turn's beginning tells when it ended.
constexpr std::int64_t least_timed_bytes = 64 << 10;

std::int64_t bytes_of(const detail::Operation& operation) {
  std::int64_t bytes = 0;
  for (const backend::BatchTensor& member : operation.members())
    bytes += member.elements() * signed_size_of(member.dtype);
  return bytes;
}

std::string_view name_of(const negotiation::Key& key) {
  if (!key.reserved()) return key.name;
  return key.number == negotiation::join_number ? "(join)" : "(change of process sets)";
}

void write_statistics(const std::string& path, int rank, const Statistics& statistics) {
  if (path == "stderr") {
    std::cerr << fmt::format("[kolo rank {}] statistics\n{}", rank, to_string(statistics));
    return;
  }
  const std::string own = diagnostics::path_of_rank(path, rank);
  if (own.empty()) return;
  std::ofstream file(own);
  file << statistics << std::flush;
  if (!file) log(LogLevel::warning, "the statistics \"" + own + "\" cannot be written");
}

}  // namespace

Recording::Recording(const Settings& settings, std::uint64_t session, int rank, int size)
    : session_(session),
      rank_(rank),
      size_(size),
      directory_(settings.flight_recorder_dir),
      statistics_path_(settings.statistics),
      writes_faults_(settings.flight_recorder > 0 && directory_ != "off"),
      recorder_(static_cast<std::size_t>(settings.flight_recorder), !settings.statistics.empty()),
      signal_(settings.flight_recorder_signal) {}

void Recording::submitted(detail::Operation& operation, TimePoint now) {
  const negotiation::Key& key = operation.key();
  operation.tag() = recorder_.submitted({.name = name_of(key),
                                         .number = key.number,
                                         .set = key.set,
                                         .bytes = bytes_of(operation),
                                         .descriptor = operation.descriptor()},
                                        now);
}

void Recording::ended(const detail::Operation& operation, bool failed, TimePoint now) {
  if (failed) {
    recorder_.failed(operation.tag(), operation.descriptor(), now);
  } else {
    recorder_.answered(operation.tag(), operation.descriptor(), now);
  }
}

void Recording::started(backend::Batch& batch, std::int64_t set,
                        const std::vector<detail::Operation*>& operations, TimePoint now) {
  const std::int64_t bytes =
      std::accumulate(operations.begin(), operations.end(), std::int64_t{0},
                      [](std::int64_t sum, const auto& one) { return sum + one->tag().bytes; });
  recorder_.batch_started(
      {.number = batch.sequence,
       .set = set,
       .type = batch.kind.type,
       .dtype = batch.tensors.empty() ? DType::u8 : batch.tensors.front()->dtype,
       .operations = operations.size(),
       .bytes = bytes},
      now);
  if (recorder_.wants_phases()) batch.observer = this;
}

void Recording::done(std::uint64_t batch, const std::vector<detail::Operation*>& operations,
                     TimePoint now) {
  const diagnostics::Recorder::Started started = recorder_.started(batch);
  if (recorder_.wants_phases() || started.bytes >= least_timed_bytes) now = Clock::now();
  for (detail::Operation* operation : operations)
    recorder_.finished(operation->tag(), operation->descriptor(), batch, started.time, now);
  recorder_.batch_done(batch, now);
}

void Recording::plans(std::uint64_t begun, std::uint64_t batches, bool live, TimePoint now) {
  recorder_.counters().plan_batches.set(batches);
  const bool begins = recorder_.counters().plans.get() != begun;
  if (!begins && live == in_plan_) return;
  recorder_.counters().plans.set(begun);
  if (in_plan_) recorder_.note(EventKind::plan_ended, "", now, begun);
  if (begins) recorder_.note(EventKind::plan_begun, "", now, begun);
  if (begins && !live) recorder_.note(EventKind::plan_ended, "", now, begun);
  in_plan_ = live;
}

void Recording::sent(std::size_t bytes) {
  recorder_.counters().messages_sent.add();
  recorder_.counters().message_bytes_sent.add(bytes);
}

void Recording::received(std::size_t bytes) {
  recorder_.counters().messages_received.add();
  recorder_.counters().message_bytes_received.add(bytes);
}

void Recording::on_phase(std::uint64_t batch, backend::Phase phase, TimePoint begin,
                         TimePoint end) {
  using diagnostics::Phase;
  recorder_.phase(batch,
                  phase == backend::Phase::pack     ? Phase::packing
                  : phase == backend::Phase::reduce ? Phase::reducing
                                                    : Phase::unpacking,
                  begin, end);
}

void Recording::fault(EventKind kind, const std::string& text, const Pending& pending,
                      TimePoint now) {
  recorder_.note(kind, text, now);
  if (!expects_fault()) return;
  had_fault_ = true;
  write_or_warn(text, pending);
}

void Recording::write_asked_for(const Pending& pending) {
  if (recorder_.events().capacity() > 0) write_or_warn("a signal asked for it", pending);
}

void Recording::write_or_warn(const std::string& reason, const Pending& pending) const {
  try {
    const std::string path = write("", reason, pending);
    log(LogLevel::warning,
        "flight record written: " + path + " (kolo-diagnose reads those of all ranks)");
  } catch (const InvalidArgument& error) {
    log(LogLevel::warning, error.what());
  }
}

std::string Recording::write(const std::string& path, const std::string& reason,
                             const Pending& pending) const {
  if (recorder_.events().capacity() == 0)
    throw InvalidArgument("there is no flight record: the setting flight_recorder is 0");
  std::string whole = path;
  if (path.empty()) {
    const std::filesystem::path directory = directory_ == "off" ? "." : directory_;
    std::error_code ignored;  // what it means shows when the file is made
    std::filesystem::create_directories(directory, ignored);
    whole = (directory / diagnostics::flight_record_name(session_, rank_)).string();
  }
  diagnostics::write_flight_record(
      whole, {.session = session_, .rank = rank_, .size = size_, .reason = reason}, recorder_,
      pending);
  return whole;
}

void Recording::end() {
  if (const auto timeline = recorder_.timeline()) {
    recorder_.set_timeline(nullptr);
    if (const std::string error = timeline->close(); !error.empty()) log(LogLevel::warning, error);
  }
  if (!statistics_path_.empty())
    write_statistics(std::exchange(statistics_path_, ""), rank_, statistics());
}

}  // namespace kolo::session
