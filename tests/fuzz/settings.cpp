// SPDX-License-Identifier: Apache-2.0
// Settings as the environment gives them: lines of NAME=VALUE.
#include "session/read_settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <variant>

#include "kolo/error.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

const std::vector<std::string> variables = [] {
  std::vector<std::string> all;
  for (const Setting& setting : settings_table) {
    all.push_back(variable_of(setting));
    if (!setting.other_variable.empty()) all.emplace_back(setting.other_variable);
  }
  return all;
}();

/// While it lives, the environment is those of the lines that set one of the variables; of several
/// the last. The process's own has many more, and to change it takes a search for each.
class Environment {
 public:
  explicit Environment(std::string_view lines) {
    std::vector<std::string_view> last(variables.size());
    while (!lines.empty()) {
      const std::string_view line = lines.substr(0, lines.find('\n'));
      lines.remove_prefix(std::min(lines.size(), line.size() + 1));
      const auto variable = std::ranges::find(variables, line.substr(0, line.find('=')));
      if (variable == variables.end() || variable->size() == line.size()) continue;
      last[static_cast<std::size_t>(variable - variables.begin())] = line;
    }
    for (const std::string_view line : last)
      if (!line.empty()) lines_.emplace_back(line);
    for (std::string& line : lines_) pointers_.push_back(line.data());
    pointers_.push_back(nullptr);
    environ = pointers_.data();
  }
  ~Environment() { environ = saved_; }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  char** saved_ = environ;
  std::vector<std::string> lines_{};
  std::vector<char*> pointers_{};
};

void require_usable(const Settings& settings, const CountSetting& type) {
  const std::int64_t value = settings.*type.value;
  require(value >= 0 && value <= type.max, "a count out of bounds");
}

void require_usable(const Settings& settings, const SecondsSetting& type) {
  const std::chrono::duration<double> value = settings.*type.value;
  require(value.count() >= 0.0 && value.count() <= type.max, "a time that no clock shows");
}

template <typename Enumeration>
void require_usable(const Settings& settings, const WordSetting<Enumeration>& type) {
  require(static_cast<std::size_t>(settings.*type.value) < type.words.size(), "no enumerator");
}

template <typename Type>
void require_usable(const Settings& /*settings*/, const Type& /*type*/) {}

/// Sets the option to the value, as a program would.
template <typename Type>
void to_option(const Settings& settings, const Type& type, SessionOptions& options) {
  if (type.option != nullptr) options.*type.option = settings.*type.value;
}

template <typename Enumeration>
void to_option(const Settings& settings, const WordSetting<Enumeration>& type,
               SessionOptions& options) {
  options.*type.option = type.words[static_cast<std::size_t>(settings.*type.value)];
}

void to_option(const Settings& settings, const InterfaceSetting& type, SessionOptions& options) {
  const ControlInterface& interface = settings.*type.value;
  if (interface.explicit_choice) options.*type.option = interface.value;
}

void to_option(const Settings& settings, const PortRangeSetting& type, SessionOptions& options) {
  const PortRange& range = settings.*type.value;
  if (range.is_set())
    options.*type.option = std::to_string(range.first) + ':' + std::to_string(range.last);
}

// A signal has several names, and a program has no number to give.
void to_option(const Settings& /*settings*/, const SignalSetting& /*type*/,
               SessionOptions& /*options*/) {}

template <typename Type>
bool same(const Settings& one, const Settings& other, const Type& type) {
  return type.option == nullptr || one.*type.value == other.*type.value;
}

bool same(const Settings& one, const Settings& other, const SecondsSetting& type) {
  constexpr std::chrono::microseconds rounding(1);  // options count seconds
  return std::chrono::abs(one.*type.value - other.*type.value) <= rounding;
}

bool same(const Settings& one, const Settings& other, const InterfaceSetting& type) {
  return !(one.*type.value).explicit_choice || (one.*type.value).value == (other.*type.value).value;
}

void to_option(const Settings& /*settings*/, const SignalsSetting& /*type*/,
               SessionOptions& /*options*/) {}

bool same(const Settings& /*one*/, const Settings& /*other*/, const SignalSetting& /*type*/) {
  return true;
}

bool same(const Settings& /*one*/, const Settings& /*other*/, const SignalsSetting& /*type*/) {
  return true;
}

/// Calls `use(type)` for each setting.
template <typename Use>
void for_each_type(Use use) {
  for (const Setting& setting : settings_table) std::visit(use, setting.type);
}

bool run(Bytes bytes) {
  Settings first;
  {
    const Environment environment(as_text(bytes));
    try {
      first = session::read_settings({});
    } catch (const InvalidArgument&) {
      return false;
    }
  }
  SessionOptions options;
  for_each_type([&](const auto& type) {
    require_usable(first, type);
    to_option(first, type, options);
  });
  const Environment empty("");
  const Settings second = session::read_settings(options);
  for_each_type([&](const auto& type) {
    require(same(first, second, type), "a setting is another one when it is given as an option");
  });
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
           "KOLO_PLAN_REPLAY=on\nKOLO_CPU_OPERATIONS=auto\n"
           "KOLO_LOG_LEVEL=trace\nKOLO_FLIGHT_RECORDER_SIGNAL=SIGUSR1"},
          {"words-2",
           "KOLO_PLAN_REPLAY=0\nKOLO_CPU_OPERATIONS=shm\n"
           "KOLO_LOG_LEVEL=DEBUG\nKOLO_FLIGHT_RECORDER_SIGNAL=WINCH"},
          {"words-3",
           "KOLO_PLAN_REPLAY=off\nKOLO_CPU_OPERATIONS=mpi\n"
           "KOLO_LOG_LEVEL=off\nKOLO_FLIGHT_RECORDER_SIGNAL=HUP"},
          {"paths", "KOLO_TIMELINE=t.json\nKOLO_STATISTICS=stderr\nKOLO_FLIGHT_RECORDER_DIR=/tmp"},
          {"dynamic", "KOLO_TIMELINE=DYNAMIC"},
          {"gpu", "KOLO_GPU_OPERATIONS=staged\nKOLO_NCCL_TIMEOUT=0.25\nHOROVOD_TIMELINE=t.json"},
          {"hosts", "KOLO_CONTROL_INTERFACE=eth0,ib0\nKOLO_PEER_TIMEOUT=0.5\nKOLO_NETWORK=sockets"},
          {"hosts-of-mpi", "OMPI_MCA_btl_tcp_if_include=10.0.0.0/8\nKOLO_PEER_TIMEOUT=0"}};
}

}  // namespace

const Target settings_target{.name = "settings", .max_bytes = 256, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
