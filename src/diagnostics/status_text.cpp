// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/status_text.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "diagnostics/json_text.hpp"

namespace kolo::internal::diagnostics {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}
double milliseconds(std::chrono::nanoseconds time) { return 1e3 * seconds(time); }

std::chrono::nanoseconds waiting(const RankPace& pace) {
  return std::max(pace.step - pace.computing, std::chrono::nanoseconds(0));
}

/// The text with the characters escaped that Prometheus' format reserves. Bytes that are not UTF-8
/// become question marks.
std::string label(std::string_view text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_at(text, i);
    const char letter = text[i];
    if (letter == '\\' || letter == '"') escaped += '\\';
    if (letter == '\n') {
      escaped += "\\n";
    } else if (length == 0) {
      escaped += '?';
    } else {
      escaped += text.substr(i, length);
    }
    i += std::max<std::size_t>(length, 1);
  }
  return escaped;
}

std::string before_in_words(const Straggler& straggler) {
  if (!straggler.tensor) return ", before many operations";
  if (straggler.tensor->empty()) return " before operations without a name";
  return " before " + json_string(*straggler.tensor);  // escapes what a terminal would obey
}

/// The metrics of all ranks, one by one: the format wants the samples of a metric together.
class Metrics {
 public:
  explicit Metrics(const JobPace& job) : job_(job) {}

  template <typename ValueOf>
  void add(std::string_view name, std::string_view type, std::string_view help, ValueOf value_of) {
    describe(name, type, help);
    for (const RankPace& pace : job_.ranks)
      if (pace.steps > 0)
        fmt::format_to(std::back_inserter(text_), "{}{{rank=\"{}\",host=\"{}\"}} {}\n", name,
                       pace.rank, label(pace.host), value_of(pace));
  }
  void add(const Straggler& straggler) {
    constexpr std::string_view name = "kolo_late_seconds";
    describe(name, "gauge", "Time per step by which a rank is later than the others");
    fmt::format_to(std::back_inserter(text_), "{}{{rank=\"{}\",tensor=\"{}\"}} {}\n", name,
                   straggler.rank, label(straggler.tensor.value_or("")), seconds(straggler.late));
  }
  [[nodiscard]] std::string text() const { return fmt::to_string(text_); }

 private:
  void describe(std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}.\n# TYPE {} {}\n", name, help, name,
                   type);
  }

  const JobPace& job_;
  fmt::memory_buffer text_{};
};

}  // namespace

std::string to_string(const Straggler& straggler) {
  return fmt::format(
      "rank {} is late by {:.1f} ms per step of {:.1f} ms, since step {}: it computes longer "
      "than the others{}",
      straggler.rank, milliseconds(straggler.late), milliseconds(straggler.step),
      straggler.since_step, before_in_words(straggler));
}

std::string to_json(const JobPace& job) {
  fmt::memory_buffer out;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  fmt::format_to(std::back_inserter(out),
                 R"({{"kolo_status":1,"session":"{:016x}","process":{},"time":{:.3f},"size":{},)"
                 "\n"
                 R"("verdict":{},"straggler":)",
                 job.session, ::getpid(), seconds(now), job.size, json_string(job.verdict));
  if (job.stragglers.empty()) {
    fmt::format_to(std::back_inserter(out), "null");
  } else {
    const Straggler& its = job.stragglers.front();
    fmt::format_to(std::back_inserter(out),
                   R"({{"rank":{},"late_ms":{:.3f},"step_ms":{:.3f},"tensor":{},"since_step":{}}})",
                   its.rank, milliseconds(its.late), milliseconds(its.step),
                   its.tensor ? json_string(*its.tensor) : "null", its.since_step);
  }
  fmt::format_to(std::back_inserter(out), ",\n\"ranks\":[");
  std::string_view separator = "\n";
  for (const RankPace& pace : job.ranks) {
    fmt::format_to(std::back_inserter(out),
                   R"({}{{"rank":{},"host":{},"steps":{},"step_ms":{:.3f},"computing_ms":{:.3f},)"
                   R"("waiting_ms":{:.3f},"bytes_per_second":{},"waits_for":{}}})",
                   separator, pace.rank, json_string(pace.host), pace.steps,
                   milliseconds(pace.step), milliseconds(pace.computing),
                   milliseconds(waiting(pace)), pace.bytes_per_second, json_string(pace.waits_for));
    separator = ",\n";
  }
  fmt::format_to(std::back_inserter(out), "]}}\n");
  return fmt::to_string(out);
}

std::string to_metrics(const JobPace& job) {
  Metrics metrics(job);
  metrics.add("kolo_steps_total", "counter", "Steps since the session began",
              [](const RankPace& pace) { return pace.steps; });
  metrics.add("kolo_step_seconds", "gauge", "Mean time of a step",
              [](const RankPace& pace) { return seconds(pace.step); });
  metrics.add("kolo_computing_seconds", "gauge", "Time per step outside of Kolo",
              [](const RankPace& pace) { return seconds(pace.computing); });
  metrics.add("kolo_waiting_seconds", "gauge", "Time per step in which the program waits in Kolo",
              [](const RankPace& pace) { return seconds(waiting(pace)); });
  metrics.add("kolo_bytes_per_second", "gauge", "Bytes of tensors in operations per second",
              [](const RankPace& pace) { return pace.bytes_per_second; });
  for (const Straggler& straggler : job.stragglers) metrics.add(straggler);
  return metrics.text();
}

}  // namespace kolo::internal::diagnostics
