// SPDX-License-Identifier: Apache-2.0
// The settings of a session, and the table that describes them.
//
// The table drives the parser, the fuzzer and kolo-settings, which writes docs/settings.md. A new
// setting needs a member of Settings, a row of the table and, if programs may set it, a member of
// SessionOptions. Every class gets the values by reference to the one `Settings` of its session.
#pragma once

#include <csignal>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/enumerators.hpp"
#include "base/log.hpp"
#include "base/port_range.hpp"
#include "kolo/session.hpp"

namespace kolo::internal {

/// The transport of data and messages between the ranks of one host.
enum class CpuOperations : std::uint8_t { automatic, shm, mpi, last = mpi };

/// The transport of data between hosts. `encrypted`: sockets, with encryption.
enum class Network : std::uint8_t { automatic, sockets, encrypted, fabric, mpi, last = mpi };

/// The transport of tensors on GPUs.
enum class GpuOperations : std::uint8_t { automatic, nccl, staged, last = staged };

/// The network interfaces for control messages between hosts.
struct ControlInterface {
  std::string value{};           // empty: all
  std::string source{};          // the name of the setting in messages
  bool explicit_choice = false;  // else the value comes from a variable of MPI
};

/// The values in use, initialized to their defaults. `settings_table` explains them.
struct Settings {
  std::int64_t fusion_threshold = 64 << 20;
  std::chrono::nanoseconds stall_warning = std::chrono::seconds(60);
  std::chrono::nanoseconds stall_shutdown{};
  std::int64_t cache_capacity = 8192;
  bool plan_replay = true;
  CpuOperations cpu_operations = CpuOperations::automatic;
  Network network = Network::automatic;
  std::string fabric_provider = "verbs";
  GpuOperations gpu_operations = GpuOperations::automatic;
  std::chrono::nanoseconds nccl_timeout = std::chrono::minutes(5);
  bool gpu_blocking_wait = false;
  std::int64_t gpu_in_flight = std::int64_t{1} << 30;
  std::int64_t flight_recorder = 4096;
  std::string flight_recorder_dir = ".";
  int flight_recorder_signal = 0;
  std::string timeline{};
  std::string statistics{};
  std::int64_t straggler_warning = 10;
  std::string status_file{};
  ControlInterface control_interface{};
  PortRange port_range{};
  std::chrono::nanoseconds peer_timeout = std::chrono::seconds(30);
  std::vector<int> stop_signals{SIGTERM, SIGUSR1};
  LogLevel log_level = LogLevel::warning;
  // Messages about timeouts that the user has set and that end in the wrong order.
  std::vector<std::string> timeouts_out_of_order{};
  std::int64_t test_ranks_per_host = 0;
  std::int64_t test_max_tag = std::numeric_limits<int>::max();
  // The longest sleep of any thread of a session, so that the periodic checks are on time. It also
  // limits the harm of a wake-up that is lost, so a test of wake-ups makes it long.
  std::chrono::nanoseconds test_max_sleep = std::chrono::milliseconds(100);
};

// The kinds of settings.

template <typename Option, typename Value>
struct SettingOf {
  std::optional<Option> SessionOptions::*option;  // null: programs cannot set it
  Value Settings::*value;
};

struct CountSetting : SettingOf<std::int64_t, std::int64_t> {
  std::string_view unit;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

struct SecondsSetting : SettingOf<std::chrono::duration<double>, std::chrono::nanoseconds> {
  static constexpr double max = 1e9;  // 30 years; 64 bits of nanoseconds hold little more
  double min = 0.0;                   // the smallest value besides 0
};

struct SwitchSetting : SettingOf<bool, bool> {};

/// One word for each enumerator, in the order of the enumerators.
template <typename Enumeration>
struct WordSetting : SettingOf<std::string, Enumeration> {
  template <typename... Words>
  constexpr WordSetting(std::optional<std::string> SessionOptions::*its_option,
                        Enumeration Settings::*its_value, Words... its_words)
      : SettingOf<std::string, Enumeration>{its_option, its_value}, words{its_words...} {
    static_assert(sizeof...(Words) == enumerator_count<Enumeration>);
  }

  std::array<std::string_view, enumerator_count<Enumeration>> words;
};

struct TextSetting : SettingOf<std::string, std::string> {
  std::string_view unit;
  std::string_view ignored{};  // a text that leaves the default, as an empty option does
  // If set, the text is a path, which is made absolute, or this word, which stays as it is.
  std::optional<std::string_view> path_unless{};
};

struct SignalName {
  std::string_view name;  // without SIG
  int number;
};

/// 0 stands for no signal.
struct SignalSetting : SettingOf<std::string, int> {
  static constexpr auto names = std::to_array<SignalName>({{"USR1", SIGUSR1},
                                                           {"USR2", SIGUSR2},
                                                           {"HUP", SIGHUP},
                                                           {"QUIT", SIGQUIT},
                                                           {"WINCH", SIGWINCH}});
};

/// A list, separated by commas, or `none`.
struct SignalsSetting : SettingOf<std::string, std::vector<int>> {
  static constexpr auto names = std::to_array<SignalName>({{"TERM", SIGTERM},
                                                           {"INT", SIGINT},
                                                           {"USR1", SIGUSR1},
                                                           {"USR2", SIGUSR2},
                                                           {"HUP", SIGHUP},
                                                           {"XCPU", SIGXCPU}});
};

struct InterfaceSetting : SettingOf<std::string, ControlInterface> {};

struct PortRangeSetting : SettingOf<std::string, PortRange> {};

struct Setting {
  using Type =
      std::variant<CountSetting, SecondsSetting, SwitchSetting, WordSetting<CpuOperations>,
                   WordSetting<Network>, WordSetting<GpuOperations>, WordSetting<LogLevel>,
                   TextSetting, SignalSetting, SignalsSetting, InterfaceSetting, PortRangeSetting>;
  std::string_view name;              // the option; the variable is KOLO_<NAME>
  std::string_view other_variable{};  // Horovod's or MPI's, read if KOLO_<NAME> is not set
  Type type;
  std::string_view meaning{};  // in Markdown; empty: not for users
};

[[nodiscard]] inline std::string variable_of(const Setting& setting) {
  std::string name = "KOLO_";
  for (const char letter : setting.name)
    name += letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
  return name;
}

inline constexpr auto settings_table = std::to_array<Setting>({
    {.name = "fusion_threshold",
     .other_variable = "HOROVOD_FUSION_THRESHOLD",
     .type = CountSetting{&SessionOptions::fusion_threshold, &Settings::fusion_threshold, "bytes"},
     .meaning = "Maximum size of a batch of fused tensors. A larger tensor is sent alone; 0 or 1 "
                "disables fusion. Rank 0's value is used."},
    {.name = "stall_warning",
     .other_variable = "HOROVOD_STALL_CHECK_TIME_SECONDS",
     .type = SecondsSetting{&SessionOptions::stall_warning, &Settings::stall_warning},
     .meaning =
         "Time before a warning names an operation that some ranks have not submitted or that "
         "makes no progress ([how to read it](diagnosing.md)). 0 disables the warning. If "
         "it is not set, at most half of `stall_shutdown`."},
    {.name = "stall_shutdown",
     .other_variable = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
     .type = SecondsSetting{&SessionOptions::stall_shutdown, &Settings::stall_shutdown},
     .meaning = "Time before such an operation, and all others with it, fail with `Stalled` on "
                "every rank. 0 disables this. Rank 0's value is used for missing ranks, each "
                "rank's own for batches that make no progress."},
    {.name = "cache_capacity",
     .other_variable = "HOROVOD_CACHE_CAPACITY",
     .type = CountSetting{&SessionOptions::cache_capacity, &Settings::cache_capacity, "names"},
     .meaning = "Maximum number of recurring names that are sent as one bit each instead of in "
                "full. 0 disables the cache. Rank 0's value is used."},
    {.name = "plan_replay",
     .type = SwitchSetting{&SessionOptions::plan_replay, &Settings::plan_replay},
     .meaning = "On one host, executes repeated steps without negotiating them each time "
                "([how](architecture.md#plans)). Rank 0's value is used."},
    {.name = "cpu_operations",
     .type = WordSetting<CpuOperations>(&SessionOptions::cpu_operations, &Settings::cpu_operations,
                                        "auto", "shm", "mpi"),
     .meaning = "Transport for data and messages [inside a host](#inside-a-host)."},
    {.name = "network",
     .type = WordSetting<Network>(&SessionOptions::network, &Settings::network, "auto", "sockets",
                                  "encrypted", "fabric", "mpi"),
     .meaning = "Transport for data [between hosts](#between-hosts). Rank 0's value is used; "
                "`encrypted` must be set on all ranks."},
    {.name = "fabric_provider",
     .type = TextSetting{&SessionOptions::fabric_provider, &Settings::fabric_provider, "name"},
     .meaning = "libfabric provider, for `network=fabric`; must be the same on all ranks."},
    {.name = "gpu_operations",
     .type = WordSetting<GpuOperations>(&SessionOptions::gpu_operations, &Settings::gpu_operations,
                                        "auto", "nccl", "staged"),
     .meaning = "Transport for [tensors on GPUs](#on-gpus)."},
    {.name = "nccl_timeout",
     .type = SecondsSetting{&SessionOptions::nccl_timeout, &Settings::nccl_timeout},
     .meaning = "Timeout for creating an NCCL communicator; the operation then fails. If it is not "
                "set, at most `stall_shutdown`."},
    {.name = "gpu_blocking_wait",
     .type = SwitchSetting{&SessionOptions::gpu_blocking_wait, &Settings::gpu_blocking_wait},
     .meaning = "Makes every wait for an operation on GPU tensors block the host until the GPU is "
                "done, instead of making the current stream wait ([which](gpu.md#stream-order))."},
    {.name = "gpu_in_flight",
     .type = CountSetting{&SessionOptions::gpu_in_flight, &Settings::gpu_in_flight, "bytes"},
     .meaning = "Maximum size of the GPU tensors whose batches NCCL has been given and the GPU has "
                "not finished. A thread that submits more waits."},
    {.name = "flight_recorder",
     .type = CountSetting{&SessionOptions::flight_recorder, &Settings::flight_recorder, "events",
                          1 << 24},
     .meaning =
         "Number of recent events that each rank keeps, 48 bytes each, and writes when something "
         "fails ([how to read them](diagnosing.md#flight-records)). 0 disables recording."},
    {.name = "flight_recorder_dir",
     .type = TextSetting{&SessionOptions::flight_recorder_dir, &Settings::flight_recorder_dir,
                         "directory", "", "off"},
     .meaning = "Directory in which each rank writes its events at the first failure that affects "
                "more than one operation. `off` writes none."},
    {.name = "flight_recorder_signal",
     .type =
         SignalSetting{&SessionOptions::flight_recorder_signal, &Settings::flight_recorder_signal},
     .meaning = "Signal on which a rank writes its events, within 0.1 s, and continues."},
    {.name = "timeline",
     .other_variable = "HOROVOD_TIMELINE",
     // DYNAMIC is Horovod's word for a timeline that the program starts later.
     .type = TextSetting{&SessionOptions::timeline, &Settings::timeline, "path", "DYNAMIC", ""},
     .meaning = "File for a [timeline](diagnosing.md#timelines): one per rank if the path contains "
                "`%r`, which is replaced by the rank; otherwise rank 0's only."},
    {.name = "statistics",
     .type = TextSetting{&SessionOptions::statistics, &Settings::statistics, "path", "", "stderr"},
     .meaning = "File for [statistics](diagnosing.md#statistics) at the end of the session, "
                "including the times for packing, reducing and unpacking. `%r` works as for "
                "`timeline`; `stderr` prints every rank's statistics."},
    {.name = "straggler_warning",
     .type = CountSetting{&SessionOptions::straggler_warning, &Settings::straggler_warning,
                          "percent of a step", 100},
     .meaning = "How much longer than the others a rank must compute in each step for a warning "
                "that [names it](diagnosing.md#stragglers). 0 disables the warning. Rank 0's value "
                "is used."},
    {.name = "status_file",
     .type = TextSetting{&SessionOptions::status_file, &Settings::status_file, "path", "", ""},
     .meaning = "File in which rank 0 keeps the status of the job, for "
                "[`kolo-diagnose top`](diagnosing.md#a-running-job) or, if its name ends with "
                "`.prom`, for Prometheus."},
    {.name = "control_interface",
     .other_variable = "OMPI_MCA_btl_tcp_if_include",
     .type = InterfaceSetting{&SessionOptions::control_interface, &Settings::control_interface},
     .meaning = "Network interfaces for [control messages](#control-messages) between hosts."},
    {.name = "port_range",
     .type = PortRangeSetting{&SessionOptions::port_range, &Settings::port_range},
     .meaning =
         "Ports at which the ranks of this host listen for others, over sockets. Needs a "
         "free port for each rank of the host, and one more ([firewalls](launching.md#tcp))."},
    // At least 0.5 s: each rank sends four times in this period, and threads sleep up to 0.1 s.
    {.name = "peer_timeout",
     .type = SecondsSetting{&SessionOptions::peer_timeout, &Settings::peer_timeout, 0.5},
     .meaning = "If a host sends nothing for this long, not even a TCP acknowledgment, it is "
                "considered lost and every operation fails with `PeerLeft`. 0 disables the check. "
                "Requires sockets between hosts. Rank 0's value is used. If it is not set, at most "
                "half of `stall_shutdown`, but at least 10 s."},
    {.name = "stop_signals",
     .type = SignalsSetting{&SessionOptions::stop_signals, &Settings::stop_signals},
     .meaning = "Signals on which a rank asks all ranks to stop, once the program has called "
                "[`stop_requested`](training.md#stopping-in-good-order). The signal of "
                "`flight_recorder_signal` is not among them."},
    {.name = "log_level",
     .other_variable = "HOROVOD_LOG_LEVEL",
     .type = WordSetting<LogLevel>(&SessionOptions::log_level, &Settings::log_level, "trace",
                                   "debug", "info", "warning", "error", "critical", "off"),
     .meaning = "Minimum severity of messages written to standard error."},
    {.name = "test_ranks_per_host",  // divides a host into hosts of this size; 0: does not
     .type = CountSetting{nullptr, &Settings::test_ranks_per_host, "ranks"}},
    {.name = "test_max_tag",  // simulates an MPI with fewer tags
     .type = CountSetting{nullptr, &Settings::test_max_tag, "", std::numeric_limits<int>::max()}},
});

}  // namespace kolo::internal
