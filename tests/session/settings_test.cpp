// SPDX-License-Identifier: Apache-2.0
#include "session/read_settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "kolo/error.hpp"

namespace kolo::internal::session {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Sets a variable for one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::string refusal(const SessionOptions& options = {}) {
  try {
    (void)read_settings(options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Settings, DefaultsWhereNothingIsSaid) {
  const Settings settings = read_settings({});
  EXPECT_EQ(settings.fusion_threshold, 64 << 20);
  EXPECT_EQ(settings.stall_warning, 60s);
  EXPECT_EQ(settings.stall_shutdown, 0s);
  EXPECT_EQ(settings.cache_capacity, 8192);
  EXPECT_EQ(settings.cpu_operations, CpuOperations::automatic);
  EXPECT_TRUE(settings.plan_replay);
  EXPECT_EQ(settings.log_level, LogLevel::warning);
  EXPECT_EQ(settings.flight_recorder, 4096);
  EXPECT_EQ(settings.flight_recorder_signal, 0);
  EXPECT_EQ(settings.timeline, "");
  EXPECT_EQ(settings.statistics, "");
}

TEST(Settings, OptionsBeatKoloVariablesBeatHorovods) {
  const Variable horovod("HOROVOD_FUSION_THRESHOLD", "1");
  EXPECT_EQ(read_settings({}).fusion_threshold, 1);
  const Variable kolo("KOLO_FUSION_THRESHOLD", "2");
  EXPECT_EQ(read_settings({}).fusion_threshold, 2);
  EXPECT_EQ(read_settings({.fusion_threshold = 3}).fusion_threshold, 3);
}

TEST(Settings, EveryVariableIsRead) {
  const Variable a("KOLO_STALL_WARNING", "0.25");
  const Variable b("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "7");
  const Variable c("KOLO_CACHE_CAPACITY", "0");
  const Variable d("HOROVOD_LOG_LEVEL", "FATAL");
  const Settings settings = read_settings({});
  EXPECT_EQ(settings.stall_warning, 250ms);
  EXPECT_EQ(settings.stall_shutdown, 7s);
  EXPECT_EQ(settings.cache_capacity, 0);
  EXPECT_EQ(settings.log_level, LogLevel::critical);
}

TEST(Settings, CpuOperationsAreOneOfThree) {
  for (const auto& [name, value] : {std::pair("auto", CpuOperations::automatic),
                                    {"shm", CpuOperations::shm},
                                    {"mpi", CpuOperations::mpi}}) {
    EXPECT_EQ(read_settings({.cpu_operations = name}).cpu_operations, value) << name;
    const Variable variable("KOLO_CPU_OPERATIONS", name);
    EXPECT_EQ(read_settings({}).cpu_operations, value) << name;
    EXPECT_EQ(read_settings({.cpu_operations = "mpi"}).cpu_operations, CpuOperations::mpi);
  }
  for (const char* name : {"MPI", "gloo", " shm", "automatic"}) {
    EXPECT_THAT(refusal({.cpu_operations = name}),
                HasSubstr(std::string("cpu_operations=") + name + ": must be auto, shm or mpi"));
    const Variable bad("KOLO_CPU_OPERATIONS", name);
    EXPECT_THAT(refusal(), HasSubstr(std::string("KOLO_CPU_OPERATIONS=") + name));
  }
  EXPECT_THAT(refusal({.cpu_operations = ""}), HasSubstr("cpu_operations=:"));
}

TEST(Settings, GpuOperationsAreOneOfThree) {
  EXPECT_EQ(read_settings({}).gpu_operations, GpuOperations::automatic);
  for (const auto& [name, value] : {std::pair("auto", GpuOperations::automatic),
                                    {"nccl", GpuOperations::nccl},
                                    {"staged", GpuOperations::staged}}) {
    const Variable variable("KOLO_GPU_OPERATIONS", name);
    EXPECT_EQ(read_settings({}).gpu_operations, value) << name;
    EXPECT_EQ(read_settings({.gpu_operations = "nccl"}).gpu_operations, GpuOperations::nccl);
  }
  const Variable bad("KOLO_GPU_OPERATIONS", "cuda");
  EXPECT_THAT(refusal(), HasSubstr("KOLO_GPU_OPERATIONS=cuda: must be auto, nccl or staged"));
}

TEST(Settings, TheTimeForNcclToBeginIsInSeconds) {
  EXPECT_EQ(read_settings({}).nccl_timeout, 300s);
  const Variable variable("KOLO_NCCL_TIMEOUT", "2.5");
  EXPECT_EQ(read_settings({}).nccl_timeout, 2500ms);
  EXPECT_EQ(read_settings({.nccl_timeout = 7s}).nccl_timeout, 7s);
}

TEST(Settings, AnEmptyVariableIsAsIfUnset) {
  const Variable empty("KOLO_FUSION_THRESHOLD", "");
  EXPECT_EQ(read_settings({}).fusion_threshold, 64 << 20);
}

TEST(Settings, WhatCannotBeReadIsRefusedWithVariableAndValue) {
  for (const char* value : {"64MB", "-1", "1e3", " 5", "99999999999999999999"}) {
    const Variable bad("KOLO_FUSION_THRESHOLD", value);
    EXPECT_THAT(refusal(), HasSubstr(std::string("KOLO_FUSION_THRESHOLD=") + value + ":"));
  }
  for (const char* value : {"soon", "-0.5", "nan", "inf", "1e12"}) {
    const Variable bad("HOROVOD_STALL_CHECK_TIME_SECONDS", value);
    EXPECT_THAT(refusal(), HasSubstr(std::string("HOROVOD_STALL_CHECK_TIME_SECONDS=") + value));
  }
  const Variable bad("KOLO_LOG_LEVEL", "loud");
  EXPECT_THAT(refusal(), HasSubstr("KOLO_LOG_LEVEL=loud"));
}

/// Converts to any option that takes it.
struct Anything {
  template <typename T>
  operator T() const {  // NOLINT(google-explicit-constructor): it stands for every member
    return T();
  }
};

template <typename Aggregate, typename... Members>
consteval std::size_t count_members(Members... members) {
  if constexpr (requires { Aggregate{members..., Anything{}}; })
    return count_members<Aggregate>(members..., Anything{});
  else
    return sizeof...(Members);
}

TEST(Settings, EveryOptionHasOneRowOfTheTable) {
  std::set<std::string_view> names;
  std::size_t with_option = 0;
  for (const Setting& setting : settings_table) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    const bool has_option = std::visit(
        [](const auto& type) {
          if constexpr (requires { type.option; }) return type.option != nullptr;
          return false;
        },
        setting.type);
    EXPECT_EQ(has_option, !setting.meaning.empty()) << setting.name;
    if (has_option) ++with_option;
  }
  EXPECT_EQ(with_option + 1, count_members<SessionOptions>());  // and `by_name`
}

TEST(Settings, OptionsByNameAreReadLikeVariables) {
  const Variable variable("KOLO_STALL_WARNING", "7");
  SessionOptions options;
  options.by_name = {{"stall_warning", "8"}, {"plan_replay", "off"}, {"cpu_operations", "mpi"}};
  Settings settings = read_settings(options);
  EXPECT_EQ(settings.stall_warning, 8s);
  EXPECT_FALSE(settings.plan_replay);
  EXPECT_EQ(settings.cpu_operations, CpuOperations::mpi);
  options.stall_warning = 9s;
  EXPECT_EQ(read_settings(options).stall_warning, 9s);
  EXPECT_THAT(refusal({.by_name = {{"cache_capacity", "many"}}}),
              HasSubstr("cache_capacity=many: must be a number"));
  EXPECT_THAT(refusal({.by_name = {{"stall_warnin", "1"}}}),
              HasSubstr("did you mean stall_warning"));
  EXPECT_THAT(refusal({.by_name = {{"test_max_tag", "100"}}}), HasSubstr("there is no setting"));
}

TEST(Settings, PlanReplayIsASwitch) {
  for (const char* off : {"off", "0"}) {
    const Variable variable("KOLO_PLAN_REPLAY", off);
    EXPECT_FALSE(read_settings({}).plan_replay);
    EXPECT_TRUE(read_settings({.plan_replay = true}).plan_replay);
  }
  for (const char* on : {"on", "1"}) {
    const Variable variable("KOLO_PLAN_REPLAY", on);
    EXPECT_TRUE(read_settings({}).plan_replay);
    EXPECT_FALSE(read_settings({.plan_replay = false}).plan_replay);
  }
  const Variable bad("KOLO_PLAN_REPLAY", "maybe");
  EXPECT_THAT(refusal(), HasSubstr("KOLO_PLAN_REPLAY=maybe"));
}

TEST(Settings, RecordingsAreSetUp) {
  {
    const Variable a("KOLO_FLIGHT_RECORDER", "10");
    const Variable b("KOLO_FLIGHT_RECORDER_DIR", "records");
    const Variable c("KOLO_FLIGHT_RECORDER_SIGNAL", "SIGUSR2");
    const Variable d("HOROVOD_TIMELINE", "t.json");
    const Variable e("KOLO_STATISTICS", "stderr");
    const Settings settings = read_settings({});
    EXPECT_EQ(settings.flight_recorder, 10);
    EXPECT_EQ(settings.flight_recorder_dir, std::filesystem::absolute("records"));
    EXPECT_EQ(settings.flight_recorder_signal, SIGUSR2);
    EXPECT_EQ(settings.timeline, std::filesystem::absolute("t.json"));
    EXPECT_EQ(settings.statistics, "stderr");
    const Variable other("KOLO_TIMELINE", "%r.json");
    EXPECT_EQ(read_settings({}).timeline, std::filesystem::absolute("%r.json"));
    EXPECT_EQ(read_settings({.timeline = "mine"}).timeline, std::filesystem::absolute("mine"));
  }
  {
    const Variable later("HOROVOD_TIMELINE", "DYNAMIC");
    EXPECT_EQ(read_settings({}).timeline, "");
  }
  EXPECT_EQ(read_settings({.flight_recorder_signal = "USR1"}).flight_recorder_signal, SIGUSR1);
  EXPECT_THAT(refusal({.flight_recorder_signal = "KILL"}),
              HasSubstr("flight_recorder_signal=KILL: must be USR1, USR2, HUP, QUIT or WINCH"));
  EXPECT_THAT(refusal({.flight_recorder = 1'000'000'000}), HasSubstr("at most 16777216 events"));
  const Variable wrong("KOLO_FLIGHT_RECORDER", "many");
  EXPECT_THAT(refusal(), HasSubstr("KOLO_FLIGHT_RECORDER=many"));
}

TEST(Settings, TimeoutsThatAreNotGivenEndBeforeTheSessionDoes) {
  const Settings late = read_settings({.stall_shutdown = 600s});
  EXPECT_EQ(late.stall_warning, 60s);
  EXPECT_EQ(late.peer_timeout, 30s);
  EXPECT_EQ(late.nccl_timeout, 5min);
  const Settings soon = read_settings({.stall_shutdown = 40s});
  EXPECT_EQ(soon.stall_warning, 20s);
  EXPECT_EQ(soon.peer_timeout, 20s);
  EXPECT_EQ(soon.nccl_timeout, 40s);
  const Variable shutdown("KOLO_STALL_SHUTDOWN", "3");
  const Settings sooner = read_settings({});
  EXPECT_EQ(sooner.stall_warning, 1500ms);
  EXPECT_EQ(sooner.peer_timeout, 10s);
  EXPECT_THAT(sooner.timeouts_out_of_order, IsEmpty());
}

TEST(Settings, TimeoutsThatAreGivenAreCompared) {
  const Variable shutdown("KOLO_STALL_SHUTDOWN", "30");
  const Variable nccl("KOLO_NCCL_TIMEOUT", "300");
  const Settings settings = read_settings({.stall_warning = 45s, .peer_timeout = 30s});
  EXPECT_EQ(settings.stall_warning, 45s);
  EXPECT_THAT(settings.timeouts_out_of_order,
              ElementsAre("stall_warning (45 s) does not end before stall_shutdown (30 s), so no "
                          "warning comes before the end",
                          HasSubstr("nccl_timeout (300 s) does not end before stall_shutdown")));
  EXPECT_THAT(read_settings({.stall_shutdown = 0s}).timeouts_out_of_order, IsEmpty());
}

TEST(Settings, StopSignalsAreAList) {
  EXPECT_THAT(read_settings({}).stop_signals, ElementsAre(SIGTERM, SIGUSR1));
  EXPECT_THAT(read_settings({.stop_signals = "none"}).stop_signals, IsEmpty());
  EXPECT_THAT(read_settings({.stop_signals = "USR2"}).stop_signals, ElementsAre(SIGUSR2));
  const Variable variable("KOLO_STOP_SIGNALS", "SIGTERM,INT,SIGXCPU,HUP");
  EXPECT_THAT(read_settings({}).stop_signals, ElementsAre(SIGTERM, SIGINT, SIGXCPU, SIGHUP));
  for (const char* const wrong : {"KILL", "TERM,,INT", ",TERM", "TERM, INT", "term", "15"})
    EXPECT_THAT(refusal({.stop_signals = wrong}),
                HasSubstr("must be none, or a list of TERM, INT, USR1, USR2, HUP or XCPU"))
        << wrong;
}

TEST(Settings, TheControlInterfaceIsKolosThenMpis) {
  EXPECT_EQ(read_settings({}).control_interface.value, "");
  const Variable mpi("OMPI_MCA_btl_tcp_if_include", "ib0");
  ControlInterface interface = read_settings({}).control_interface;
  EXPECT_EQ(interface.value, "ib0");
  EXPECT_EQ(interface.source, "OMPI_MCA_btl_tcp_if_include");
  EXPECT_FALSE(interface.explicit_choice);
  const Variable kolo("KOLO_CONTROL_INTERFACE", "eth0,10.0.0.0/8");
  interface = read_settings({}).control_interface;
  EXPECT_EQ(interface.value, "eth0,10.0.0.0/8");
  EXPECT_EQ(interface.source, "KOLO_CONTROL_INTERFACE");
  EXPECT_TRUE(interface.explicit_choice);
  interface = read_settings({.control_interface = "none"}).control_interface;
  EXPECT_EQ(interface.value, "none");
  EXPECT_EQ(interface.source, "control_interface");
  EXPECT_TRUE(interface.explicit_choice);
  EXPECT_EQ(read_settings({.control_interface = ""}).control_interface.value, "");
}

TEST(Settings, ThePortsAreARange) {
  EXPECT_FALSE(read_settings({}).port_range.is_set());
  EXPECT_FALSE(read_settings({.port_range = ""}).port_range.is_set());
  EXPECT_EQ(read_settings({.port_range = "46000:46099"}).port_range, (PortRange{46000, 46099}));
  const Variable variable("KOLO_PORT_RANGE", "7:7");
  EXPECT_EQ(read_settings({}).port_range, (PortRange{7, 7}));
  for (const char* const wrong : {"7", "8:7", "0:7", "7:65536", ":7", "7:", "7:8:9", "a:b"})
    EXPECT_THAT(refusal({.port_range = wrong}),
                HasSubstr(std::string("port_range=") + wrong + ": must be two ports"));
}

TEST(Settings, ThePeerTimeoutIsNotTooShort) {
  EXPECT_EQ(read_settings({}).peer_timeout, 30s);
  EXPECT_EQ(read_settings({.peer_timeout = 0.5s}).peer_timeout, 500ms);
  EXPECT_EQ(read_settings({.peer_timeout = 0s}).peer_timeout, 0s);
  EXPECT_THAT(refusal({.peer_timeout = 0.4s}),
              HasSubstr("peer_timeout=0.4: must be 0 or a number of seconds from 0.5 to 1e9"));
  {
    const Variable variable("KOLO_PEER_TIMEOUT", "2.5");
    EXPECT_EQ(read_settings({}).peer_timeout, 2500ms);
  }
  for (const char* value : {"soon", "-1", "0.1", "nan"}) {
    const Variable bad("KOLO_PEER_TIMEOUT", value);
    EXPECT_THAT(refusal(), HasSubstr(std::string("KOLO_PEER_TIMEOUT=") + value));
  }
}

TEST(Settings, OptionsAreCheckedToo) {
  EXPECT_THAT(refusal({.fusion_threshold = -5}), HasSubstr("fusion_threshold=-5"));
  EXPECT_THAT(refusal({.stall_warning = -1s}), HasSubstr("stall_warning=-1"));
  EXPECT_THAT(refusal({.cache_capacity = -1}), HasSubstr("cache_capacity=-1"));
  EXPECT_THAT(refusal({.log_level = "noisy"}), HasSubstr("log_level=noisy"));
}

TEST(Settings, MisspelledVariablesAreFound) {
  const auto none = find_misspelled_variables();
  {
    const Variable missing("KOLO_STALL_SHUTDWN", "5");
    const Variable joined("KOLO_LOGLEVEL", "debug");
    const Variable right("KOLO_LOG_LEVEL", "info");
    const Variable of_kolorun("KOLO_RENDEZVOUS_PROCESS", "2");
    const Variable of_the_program("KOLO_EXPERIMENT", "7");
    EXPECT_THAT(find_misspelled_variables(),
                testing::IsSupersetOf({std::pair("KOLO_STALL_SHUTDWN", "KOLO_STALL_SHUTDOWN"),
                                       std::pair("KOLO_LOGLEVEL", "KOLO_LOG_LEVEL")}));
    EXPECT_EQ(find_misspelled_variables().size(), none.size() + 2);
  }
  EXPECT_EQ(find_misspelled_variables(), none);
}

TEST(Settings, TestsMayMakeUpHosts) {
  EXPECT_EQ(read_settings({}).test_ranks_per_host, 0);
  {
    const Variable ranks("KOLO_TEST_RANKS_PER_HOST", "2");
    EXPECT_EQ(read_settings({}).test_ranks_per_host, 2);
  }
  const Variable wrong("KOLO_TEST_RANKS_PER_HOST", "two");
  EXPECT_THAT(refusal(), HasSubstr("KOLO_TEST_RANKS_PER_HOST=two"));
}

TEST(Settings, TestsMayLeaveMpiFewerTags) {
  EXPECT_EQ(read_settings({}).test_max_tag, std::numeric_limits<int>::max());
  const Variable tags("KOLO_TEST_MAX_TAG", "143");
  EXPECT_EQ(read_settings({}).test_max_tag, 143);
}

}  // namespace
}  // namespace kolo::internal::session
