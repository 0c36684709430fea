// SPDX-License-Identifier: Apache-2.0
// Messages to the user, on standard error: "[kolo rank 1] warning: ...". Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::internal {

enum class LogLevel : std::uint8_t {
  trace,
  debug,
  info,
  warning,
  error,
  critical,
  off,
  last = off
};

/// Writes one line if `level` is at least the level of `set_log_level`.
void log(LogLevel level, std::string_view message);

/// Like `log`, for messages that may be frequent: LogLimit decides for each kind which messages are
/// written. The next written message of a kind reports how many were suppressed.
void log_limited(LogLevel level, std::string_view kind, std::string_view message);

/// Writes, for each kind, the number of suppressed messages that no later message has reported.
void write_suppressed();

inline void info(std::string_view message) { log(LogLevel::info, message); }
inline void warn(std::string_view message) { log(LogLevel::warning, message); }

/// Messages below `level` are not written. The default is `warning`.
void set_log_level(LogLevel level);

/// Adds the rank to every further line.
void set_log_rank(int rank);

/// Parses "trace", "debug", "info", "warning", "error", "critical" or "off" in any case, and
/// Horovod's "fatal", which means critical.
[[nodiscard]] std::optional<LogLevel> parse_log_level(std::string_view text);

/// Admits at most `max_in_window` messages of each kind in `window`. Not thread-safe.
class LogLimit {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr int max_in_window = 20;
  static constexpr std::chrono::seconds window{10};

  /// True if a message of this kind may be written at `now`.
  [[nodiscard]] bool admits(std::string_view kind, TimePoint now);
  /// The number of messages of the kind that were suppressed since the last call.
  [[nodiscard]] std::uint64_t take_suppressed(std::string_view kind);
  [[nodiscard]] std::vector<std::string> kinds() const;

 private:
  struct Tally {
    TimePoint begin{};  // the start of the current window
    int written = 0;    // messages written in the current window
    std::uint64_t suppressed = 0;
  };
  std::map<std::string, Tally, std::less<>> kinds_{};
};

}  // namespace kolo::internal
