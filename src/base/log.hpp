// Messages to the user, on standard error: "[kolo rank 1] warning: ...". Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kolo {

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error, critical, off };

/// Writes one line if `level` is at least the one set.
void log(LogLevel level, std::string_view message);

inline void info(std::string_view message) { log(LogLevel::info, message); }
inline void warn(std::string_view message) { log(LogLevel::warning, message); }

/// What is less urgent than `level` is not written. `warning` at first.
void set_log_level(LogLevel level);

/// The rank that every further line names. None is named at first.
void set_log_rank(int rank);

/// "trace", "debug", "info", "warning", "error", "critical" or "off" in any case, and Horovod's
/// "fatal", which is critical.
[[nodiscard]] std::optional<LogLevel> parse_log_level(std::string_view text);

}  // namespace kolo
