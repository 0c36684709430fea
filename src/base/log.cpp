// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/enumerators.hpp"
#include "base/process_limits.hpp"

namespace kolo::internal {
namespace {

/// Kolo's own logger is not in spdlog's registry, where the program may have a logger of that name.
struct Log {
  spdlog::logger logger{"kolo", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  std::mutex mutex{};  // guards `limit`
  LogLimit limit{};

  Log() {
    logger.set_level(spdlog::level::warn);
    logger.set_pattern("[kolo] %l: %v");
  }
};

/// Never destroyed, since threads and exit handlers may still write when statics are gone.
Log& the_log() {
  static Log& log = *new Log;
  return log;
}

/// Converts by value: both enumerations list the same levels in the same order.
spdlog::level::level_enum to_spdlog(LogLevel level) {
  static_assert(enumerator_count<LogLevel> == spdlog::level::n_levels &&
                static_cast<int>(LogLevel::warning) == spdlog::level::warn &&
                static_cast<int>(LogLevel::off) == spdlog::level::off);
  return static_cast<spdlog::level::level_enum>(level);
}

std::string in_words(std::uint64_t suppressed, std::string_view kind) {
  return fmt::format("{} more {} were not written", suppressed, kind);
}

}  // namespace

void log(LogLevel level, std::string_view message) {
  const FileSizeErrors errors;  // standard error may be a file
  the_log().logger.log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

bool LogLimit::admits(std::string_view kind, TimePoint now) {
  auto found = kinds_.find(kind);
  if (found == kinds_.end()) found = kinds_.emplace(kind, Tally{now}).first;
  Tally& tally = found->second;
  if (now - tally.begin >= window) {
    tally.begin = now;
    tally.written = 0;
  }
  if (tally.written < max_in_window) {
    ++tally.written;
    return true;
  }
  ++tally.suppressed;
  return false;
}

std::uint64_t LogLimit::take_suppressed(std::string_view kind) {
  const auto found = kinds_.find(kind);
  return found == kinds_.end() ? 0 : std::exchange(found->second.suppressed, 0);
}

std::vector<std::string> LogLimit::kinds() const {
  std::vector<std::string> kinds;
  for (const auto& [kind, tally] : kinds_) kinds.push_back(kind);
  return kinds;
}

void log_limited(LogLevel level, std::string_view kind, std::string_view message) {
  std::uint64_t suppressed = 0;
  {
    const std::lock_guard lock(the_log().mutex);
    if (!the_log().limit.admits(kind, std::chrono::steady_clock::now())) return;
    suppressed = the_log().limit.take_suppressed(kind);
  }
  if (suppressed > 0) log(level, in_words(suppressed, kind));
  log(level, message);
}

void write_suppressed() {
  const std::lock_guard lock(the_log().mutex);
  for (const std::string& kind : the_log().limit.kinds())
    if (const std::uint64_t suppressed = the_log().limit.take_suppressed(kind))
      log(LogLevel::warning, in_words(suppressed, kind));
}

void set_log_level(LogLevel level) { the_log().logger.set_level(to_spdlog(level)); }

void set_log_rank(int rank) {
  the_log().logger.set_pattern(fmt::format("[kolo rank {}] %l: %v", rank));
}

std::optional<LogLevel> parse_log_level(std::string_view text) {
  constexpr auto names = std::to_array<std::string_view>(
      {"trace", "debug", "info", "warning", "error", "critical", "off"});
  static_assert(names.size() == enumerator_count<LogLevel>);
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {  // in ASCII, whatever the locale
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (lower == "fatal") return LogLevel::critical;
  const auto found = std::ranges::find(names, lower);
  if (found == names.end()) return std::nullopt;
  return static_cast<LogLevel>(found - names.begin());
}

}  // namespace kolo::internal
