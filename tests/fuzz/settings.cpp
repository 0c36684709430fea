// Settings as the environment gives them: lines of NAME=VALUE.
#include "session/settings.hpp"

#include <array>
#include <cstdlib>
#include <cstring>

#include "kolo/error.hpp"
#include "target.hpp"

namespace kolo::fuzz {
namespace {

constexpr std::array<const char*, 19> variables{"KOLO_FUSION_THRESHOLD",
                                                "HOROVOD_FUSION_THRESHOLD",
                                                "KOLO_STALL_WARNING",
                                                "HOROVOD_STALL_CHECK_TIME_SECONDS",
                                                "KOLO_STALL_SHUTDOWN",
                                                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
                                                "KOLO_CACHE_CAPACITY",
                                                "HOROVOD_CACHE_CAPACITY",
                                                "KOLO_PLAN_REPLAY",
                                                "KOLO_CPU_OPERATIONS",
                                                "KOLO_SINGLE_COPY",
                                                "KOLO_FLIGHT_RECORDER",
                                                "KOLO_FLIGHT_RECORDER_DIR",
                                                "KOLO_FLIGHT_RECORDER_SIGNAL",
                                                "KOLO_TIMELINE",
                                                "KOLO_STATISTICS",
                                                "KOLO_LOG_LEVEL",
                                                "HOROVOD_LOG_LEVEL",
                                                "KOLO_TEST_RANKS_PER_HOST"};

/// The environment without any of them but those of the lines. It refers to this.
class Environment {
 public:
  explicit Environment(std::string_view lines) {
    for (std::size_t i = 0; i < variables.size(); ++i) ::unsetenv(variables[i]);
    while (!lines.empty()) {
      const std::string_view line = lines.substr(0, lines.find('\n'));
      lines.remove_prefix(std::min(lines.size(), line.size() + 1));
      for (std::size_t i = 0; i < variables.size(); ++i) {
        const std::size_t length = std::strlen(variables[i]);
        if (!line.starts_with(variables[i]) || line.substr(length, 1) != "=") continue;
        lines_[i] = line;
        ::putenv(lines_[i].data());  // which keeps the pointer, where setenv would keep a copy
      }
    }
  }
  ~Environment() {
    for (const char* const name : variables) ::unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::array<std::string, variables.size()> lines_{};
};

void require_usable(const session::Settings& settings) {
  constexpr std::chrono::seconds most(1'000'000'000);
  require(settings.fusion_threshold >= 0 && settings.cache_capacity >= 0 &&
              settings.flight_recorder >= 0 && settings.test_ranks_per_host >= 0,
          "a count below 0");
  require(settings.stall_warning.count() >= 0 && settings.stall_warning <= most &&
              settings.stall_shutdown.count() >= 0 && settings.stall_shutdown <= most,
          "a time that no clock shows");
}

/// As a program would give them.
SessionOptions to_options(const session::Settings& settings) {
  SessionOptions options;
  options.fusion_threshold = settings.fusion_threshold;
  options.stall_warning = settings.stall_warning;
  options.stall_shutdown = settings.stall_shutdown;
  options.cache_capacity = settings.cache_capacity;
  options.plan_replay = settings.plan_replay;
  options.flight_recorder = settings.flight_recorder;
  options.flight_recorder_dir = settings.flight_recorder_dir;
  options.timeline = settings.timeline;
  options.statistics = settings.statistics;
  return options;
}

bool run(Bytes bytes) {
  const SessionOptions none;
  session::Settings first;
  {
    const Environment environment(as_text(bytes));
    try {
      first = session::read_settings(none);
    } catch (const InvalidArgument&) {
      return false;
    }
  }
  require_usable(first);
  const session::Settings second = session::read_settings(to_options(first));
  constexpr std::chrono::microseconds rounding(1);  // options count seconds
  require(first.fusion_threshold == second.fusion_threshold &&
              std::chrono::abs(first.stall_warning - second.stall_warning) <= rounding &&
              std::chrono::abs(first.stall_shutdown - second.stall_shutdown) <= rounding &&
              first.cache_capacity == second.cache_capacity &&
              first.plan_replay == second.plan_replay &&
              first.flight_recorder == second.flight_recorder &&
              first.flight_recorder_dir == second.flight_recorder_dir &&
              first.timeline == second.timeline && first.statistics == second.statistics,
          "settings are others when they are given as options");
  return true;
}

std::vector<Seed> seeds() {
  return {{"none", ""},
          {"counts",
           "KOLO_FUSION_THRESHOLD=1048576\nKOLO_CACHE_CAPACITY=0\nKOLO_FLIGHT_RECORDER=16777216\n"
           "KOLO_TEST_RANKS_PER_HOST=2"},
          {"seconds", "KOLO_STALL_WARNING=1e9\nKOLO_STALL_SHUTDOWN=0.5"},
          {"horovod",
           "HOROVOD_FUSION_THRESHOLD=0\nHOROVOD_STALL_CHECK_TIME_SECONDS=60\n"
           "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=1e-9\nHOROVOD_CACHE_CAPACITY=1\n"
           "HOROVOD_LOG_LEVEL=Fatal"},
          {"words-1",
           "KOLO_PLAN_REPLAY=on\nKOLO_CPU_OPERATIONS=auto\nKOLO_SINGLE_COPY=auto\n"
           "KOLO_LOG_LEVEL=trace\nKOLO_FLIGHT_RECORDER_SIGNAL=SIGUSR1"},
          {"words-2",
           "KOLO_PLAN_REPLAY=0\nKOLO_CPU_OPERATIONS=shm\nKOLO_SINGLE_COPY=1\n"
           "KOLO_LOG_LEVEL=DEBUG\nKOLO_FLIGHT_RECORDER_SIGNAL=WINCH"},
          {"words-3",
           "KOLO_PLAN_REPLAY=off\nKOLO_CPU_OPERATIONS=mpi\nKOLO_SINGLE_COPY=off\n"
           "KOLO_LOG_LEVEL=off\nKOLO_FLIGHT_RECORDER_SIGNAL=HUP"},
          {"paths", "KOLO_TIMELINE=t.json\nKOLO_STATISTICS=stderr\nKOLO_FLIGHT_RECORDER_DIR=/tmp"},
          {"dynamic", "KOLO_TIMELINE=DYNAMIC"}};
}

}  // namespace

const Target settings_target{.name = "settings", .most_bytes = 256, .run = run, .seeds = seeds};

}  // namespace kolo::fuzz
