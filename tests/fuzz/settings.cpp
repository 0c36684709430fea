// Settings as the environment gives them: lines of NAME=VALUE.
#include "session/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "kolo/error.hpp"
#include "target.hpp"

namespace kolo::fuzz {
namespace {

constexpr std::array<std::string_view, 27> variables{"KOLO_FUSION_THRESHOLD",
                                                     "HOROVOD_FUSION_THRESHOLD",
                                                     "KOLO_STALL_WARNING",
                                                     "HOROVOD_STALL_CHECK_TIME_SECONDS",
                                                     "KOLO_STALL_SHUTDOWN",
                                                     "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
                                                     "KOLO_CACHE_CAPACITY",
                                                     "HOROVOD_CACHE_CAPACITY",
                                                     "KOLO_PLAN_REPLAY",
                                                     "KOLO_CPU_OPERATIONS",
                                                     "KOLO_MPI_COLLECTIVES",
                                                     "KOLO_HOST_ALLREDUCE",
                                                     "KOLO_SINGLE_COPY",
                                                     "KOLO_GPU_OPERATIONS",
                                                     "KOLO_NCCL_TIMEOUT",
                                                     "KOLO_FLIGHT_RECORDER",
                                                     "KOLO_FLIGHT_RECORDER_DIR",
                                                     "KOLO_FLIGHT_RECORDER_SIGNAL",
                                                     "KOLO_TIMELINE",
                                                     "HOROVOD_TIMELINE",
                                                     "KOLO_STATISTICS",
                                                     "KOLO_CONTROL_INTERFACE",
                                                     "OMPI_MCA_btl_tcp_if_include",
                                                     "KOLO_PEER_TIMEOUT",
                                                     "KOLO_LOG_LEVEL",
                                                     "HOROVOD_LOG_LEVEL",
                                                     "KOLO_TEST_RANKS_PER_HOST"};

/// While it lives, the environment is those of the lines that set one of the variables; of several
/// the last. The process's own has many more, and to change it takes a search for each.
class Environment {
 public:
  explicit Environment(std::string_view lines) {
    std::array<std::string_view, variables.size()> last{};
    while (!lines.empty()) {
      const std::string_view line = lines.substr(0, lines.find('\n'));
      lines.remove_prefix(std::min(lines.size(), line.size() + 1));
      const auto variable = std::ranges::find(variables, line.substr(0, line.find('=')));
      if (variable == variables.end() || variable->size() == line.size()) continue;
      last[static_cast<std::size_t>(variable - variables.begin())] = line;
    }
    std::size_t set = 0;
    for (const std::string_view line : last) {
      if (line.empty()) continue;
      lines_[set] = line;
      pointers_[set] = lines_[set].data();
      ++set;
    }
    environ = pointers_.data();
  }
  ~Environment() { environ = saved_; }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  char** saved_ = environ;
  std::array<std::string, variables.size()> lines_{};
  std::array<char*, variables.size() + 1> pointers_{};  // the last is null
};

void require_usable(const session::Settings& settings) {
  constexpr std::chrono::seconds most(1'000'000'000);
  require(settings.fusion_threshold >= 0 && settings.cache_capacity >= 0 &&
              settings.flight_recorder >= 0 && settings.test_ranks_per_host >= 0,
          "a count below 0");
  require(settings.stall_warning.count() >= 0 && settings.stall_warning <= most &&
              settings.stall_shutdown.count() >= 0 && settings.stall_shutdown <= most &&
              settings.nccl_timeout.count() >= 0 && settings.nccl_timeout <= most &&
              settings.peer_timeout.count() >= 0 && settings.peer_timeout <= most,
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
  options.mpi_collectives = settings.mpi_collectives;
  options.nccl_timeout = settings.nccl_timeout;
  options.peer_timeout = settings.peer_timeout;
  options.flight_recorder = settings.flight_recorder;
  options.flight_recorder_dir = settings.flight_recorder_dir;
  options.timeline = settings.timeline;
  options.statistics = settings.statistics;
  if (settings.control_interface.explicit_choice)
    options.control_interface = settings.control_interface.value;
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
  const Environment empty("");
  const session::Settings second = session::read_settings(to_options(first));
  constexpr std::chrono::microseconds rounding(1);  // options count seconds
  const auto near = [&](std::chrono::nanoseconds a, std::chrono::nanoseconds b) {
    return std::chrono::abs(a - b) <= rounding;
  };
  require(first.fusion_threshold == second.fusion_threshold &&
              near(first.stall_warning, second.stall_warning) &&
              near(first.stall_shutdown, second.stall_shutdown) &&
              near(first.nccl_timeout, second.nccl_timeout) &&
              near(first.peer_timeout, second.peer_timeout) &&
              first.cache_capacity == second.cache_capacity &&
              first.plan_replay == second.plan_replay &&
              first.mpi_collectives == second.mpi_collectives &&
              first.flight_recorder == second.flight_recorder &&
              first.flight_recorder_dir == second.flight_recorder_dir &&
              first.timeline == second.timeline && first.statistics == second.statistics,
          "settings are others when they are given as options");
  require(!first.control_interface.explicit_choice ||
              first.control_interface.value == second.control_interface.value,
          "an interface is another one when it is given as an option");
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
          {"dynamic", "KOLO_TIMELINE=DYNAMIC"},
          {"gpu", "KOLO_GPU_OPERATIONS=staged\nKOLO_NCCL_TIMEOUT=0.25\nHOROVOD_TIMELINE=t.json"},
          {"hosts",
           "KOLO_CONTROL_INTERFACE=eth0,ib0\nKOLO_PEER_TIMEOUT=0.5\nKOLO_MPI_COLLECTIVES=on\nKOLO_"
           "HOST_ALLREDUCE=ring"},
          {"hosts-of-mpi", "OMPI_MCA_btl_tcp_if_include=10.0.0.0/8\nKOLO_PEER_TIMEOUT=0"}};
}

}  // namespace

const Target settings_target{.name = "settings", .most_bytes = 256, .run = run, .seeds = seeds};

}  // namespace kolo::fuzz
