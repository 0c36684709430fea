#include "session/settings.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "diagnostics/record_signal.hpp"
#include "kolo/error.hpp"

namespace kolo::session {
namespace {

constexpr std::int64_t most_recorded_events = 1 << 24;
// Beats are sent every quarter of it, and nobody sleeps longer than 0.1 s.
constexpr double shortest_peer_timeout = 0.5;

/// A setting's text and what to call it in a message.
struct Source {
  std::string name;
  std::string text;
};

/// The first of the variables that is set to something.
std::optional<Source> environment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text != nullptr && *text != '\0') return Source{name, text};
  }
  return std::nullopt;
}

[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view wanted) {
  throw InvalidArgument(fmt::format("{}={}: {}", name, value, wanted));
}

template <typename Number>
std::optional<Number> parse(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

std::int64_t read_count(const std::optional<std::int64_t>& option, std::string_view option_name,
                        std::initializer_list<const char*> variables, std::string_view unit,
                        std::int64_t otherwise) {
  const std::string wanted = fmt::format("must be a number of {}, 0 or more", unit);
  if (option) {
    if (*option < 0) refuse(option_name, std::to_string(*option), wanted);
    return *option;
  }
  const std::optional<Source> source = environment(variables);
  if (!source) return otherwise;
  const std::optional<std::int64_t> value = parse<std::int64_t>(source->text);
  if (!value || *value < 0) refuse(source->name, source->text, wanted);
  return *value;
}

/// `least`: of what is not 0.
std::chrono::nanoseconds read_seconds(const std::optional<std::chrono::duration<double>>& option,
                                      std::string_view option_name,
                                      std::initializer_list<const char*> variables,
                                      std::chrono::nanoseconds otherwise, double least = 0.0) {
  constexpr double most = 1e9;  // 30 years; what is more does not fit into nanoseconds
  const std::string wanted =
      least == 0.0 ? "must be a number of seconds from 0 to 1e9"
                   : fmt::format("must be 0 or a number of seconds from {} to 1e9", least);
  const auto usable = [&](double seconds) {
    return seconds == 0.0 || (seconds >= least && seconds <= most);
  };
  double seconds = 0.0;
  if (option) {
    seconds = option->count();
    if (!usable(seconds)) refuse(option_name, fmt::format("{}", seconds), wanted);
  } else {
    const std::optional<Source> source = environment(variables);
    if (!source) return otherwise;
    const std::optional<double> value = parse<double>(source->text);
    if (!value || !usable(*value)) refuse(source->name, source->text, wanted);
    seconds = *value;
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

CpuOperations read_cpu_operations(const std::optional<std::string>& option,
                                  CpuOperations otherwise) {
  std::optional<Source> source = environment({"KOLO_CPU_OPERATIONS"});
  if (option) source = Source{"cpu_operations", *option};
  if (!source) return otherwise;
  if (source->text == "auto") return CpuOperations::automatic;
  if (source->text == "shm") return CpuOperations::shm;
  if (source->text == "mpi") return CpuOperations::mpi;
  refuse(source->name, source->text, "must be auto, shm or mpi");
}

HostAllreduce read_host_allreduce(const std::optional<std::string>& option,
                                  HostAllreduce otherwise) {
  std::optional<Source> source = environment({"KOLO_HOST_ALLREDUCE"});
  if (option) source = Source{"host_allreduce", *option};
  if (!source) return otherwise;
  if (source->text == "auto") return HostAllreduce::automatic;
  if (source->text == "direct") return HostAllreduce::direct;
  if (source->text == "ring") return HostAllreduce::ring;
  if (source->text == "doubling") return HostAllreduce::doubling;
  refuse(source->name, source->text, "must be auto, direct, ring or doubling");
}

SingleCopy read_single_copy(const std::optional<std::string>& option, SingleCopy otherwise) {
  std::optional<Source> source = environment({"KOLO_SINGLE_COPY"});
  if (option) source = Source{"single_copy", *option};
  if (!source) return otherwise;
  if (source->text == "auto") return SingleCopy::automatic;
  if (source->text == "on" || source->text == "1") return SingleCopy::on;
  if (source->text == "off" || source->text == "0") return SingleCopy::off;
  refuse(source->name, source->text, "must be auto, on, 1, off or 0");
}

GpuOperations read_gpu_operations(const std::optional<std::string>& option,
                                  GpuOperations otherwise) {
  std::optional<Source> source = environment({"KOLO_GPU_OPERATIONS"});
  if (option) source = Source{"gpu_operations", *option};
  if (!source) return otherwise;
  if (source->text == "auto") return GpuOperations::automatic;
  if (source->text == "nccl") return GpuOperations::nccl;
  if (source->text == "staged") return GpuOperations::staged;
  refuse(source->name, source->text, "must be auto, nccl or staged");
}

bool read_switch(const std::optional<bool>& option, const char* kolo, bool otherwise) {
  if (option) return *option;
  const std::optional<Source> source = environment({kolo});
  if (!source) return otherwise;
  if (source->text == "on" || source->text == "1") return true;
  if (source->text == "off" || source->text == "0") return false;
  refuse(source->name, source->text, "must be on, 1, off or 0");
}

std::string read_text(const std::optional<std::string>& option,
                      std::initializer_list<const char*> variables, const std::string& otherwise) {
  if (option) return option->empty() ? otherwise : *option;
  const std::optional<Source> source = environment(variables);
  return source ? source->text : otherwise;
}

int read_signal(const std::optional<std::string>& option, int otherwise) {
  std::optional<Source> source = environment({"KOLO_FLIGHT_RECORDER_SIGNAL"});
  if (option) source = Source{"flight_recorder_signal", *option};
  if (!source || source->text.empty()) return otherwise;
  const std::optional<int> signal = diagnostics::parse_signal(source->text);
  if (!signal) refuse(source->name, source->text, "must be USR1, USR2, HUP, QUIT or WINCH");
  return *signal;
}

/// Horovod's DYNAMIC means that the program begins it.
std::string read_timeline(const std::optional<std::string>& option) {
  const std::string path = read_text(option, {"KOLO_TIMELINE", "HOROVOD_TIMELINE"}, "");
  return path == "DYNAMIC" ? "" : path;
}

ControlInterface read_control_interface(const std::optional<std::string>& option) {
  if (option) return {*option, "control_interface", !option->empty()};
  if (const auto own = environment({"KOLO_CONTROL_INTERFACE"})) return {own->text, own->name, true};
  if (const auto mpi = environment({"OMPI_MCA_btl_tcp_if_include"}))
    return {mpi->text, mpi->name, false};
  return {};
}

LogLevel read_log_level(const std::optional<std::string>& option, LogLevel otherwise) {
  std::optional<Source> source = environment({"KOLO_LOG_LEVEL", "HOROVOD_LOG_LEVEL"});
  if (option) source = Source{"log_level", *option};
  if (!source) return otherwise;
  const std::optional<LogLevel> level = parse_log_level(source->text);
  if (!level)
    refuse(source->name, source->text,
           "must be trace, debug, info, warning, error, critical or off");
  return *level;
}

}  // namespace

Settings read_settings(const SessionOptions& options) {
  const Settings defaults;
  Settings settings;
  settings.fusion_threshold = read_count(options.fusion_threshold, "fusion_threshold",
                                         {"KOLO_FUSION_THRESHOLD", "HOROVOD_FUSION_THRESHOLD"},
                                         "bytes", defaults.fusion_threshold);
  settings.stall_warning = read_seconds(options.stall_warning, "stall_warning",
                                        {"KOLO_STALL_WARNING", "HOROVOD_STALL_CHECK_TIME_SECONDS"},
                                        defaults.stall_warning);
  settings.stall_shutdown = read_seconds(
      options.stall_shutdown, "stall_shutdown",
      {"KOLO_STALL_SHUTDOWN", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"}, defaults.stall_shutdown);
  settings.cache_capacity = read_count(options.cache_capacity, "cache_capacity",
                                       {"KOLO_CACHE_CAPACITY", "HOROVOD_CACHE_CAPACITY"}, "names",
                                       defaults.cache_capacity);
  settings.plan_replay = read_switch(options.plan_replay, "KOLO_PLAN_REPLAY", defaults.plan_replay);
  settings.cpu_operations = read_cpu_operations(options.cpu_operations, defaults.cpu_operations);
  settings.mpi_collectives =
      read_switch(options.mpi_collectives, "KOLO_MPI_COLLECTIVES", defaults.mpi_collectives);
  settings.host_allreduce = read_host_allreduce(options.host_allreduce, defaults.host_allreduce);
  settings.single_copy = read_single_copy(options.single_copy, defaults.single_copy);
  settings.gpu_operations = read_gpu_operations(options.gpu_operations, defaults.gpu_operations);
  settings.nccl_timeout = read_seconds(options.nccl_timeout, "nccl_timeout", {"KOLO_NCCL_TIMEOUT"},
                                       defaults.nccl_timeout);
  settings.flight_recorder =
      read_count(options.flight_recorder, "flight_recorder", {"KOLO_FLIGHT_RECORDER"}, "events",
                 defaults.flight_recorder);
  if (settings.flight_recorder > most_recorded_events)
    refuse("flight_recorder", std::to_string(settings.flight_recorder),
           fmt::format("must be at most {} events", most_recorded_events));
  settings.flight_recorder_dir = read_text(
      options.flight_recorder_dir, {"KOLO_FLIGHT_RECORDER_DIR"}, defaults.flight_recorder_dir);
  settings.flight_recorder_signal =
      read_signal(options.flight_recorder_signal, defaults.flight_recorder_signal);
  settings.timeline = read_timeline(options.timeline);
  settings.statistics = read_text(options.statistics, {"KOLO_STATISTICS"}, defaults.statistics);
  settings.control_interface = read_control_interface(options.control_interface);
  settings.peer_timeout = read_seconds(options.peer_timeout, "peer_timeout", {"KOLO_PEER_TIMEOUT"},
                                       defaults.peer_timeout, shortest_peer_timeout);
  settings.log_level = read_log_level(options.log_level, defaults.log_level);
  settings.test_ranks_per_host =
      read_count({}, "", {"KOLO_TEST_RANKS_PER_HOST"}, "ranks", defaults.test_ranks_per_host);
  return settings;
}

}  // namespace kolo::session
