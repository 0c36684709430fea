// The settings of a session, read once: from the options, else the environment, else defaults.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/choices.hpp"
#include "base/log.hpp"
#include "kolo/session.hpp"

namespace kolo::session {

/// Whether ranks of a host read long tensors in each other's private memory.
enum class SingleCopy : std::uint8_t { automatic, on, off };

/// The interfaces for control messages between hosts, and what to call the setting in a message.
struct ControlInterface {
  std::string value{};  // empty: all
  std::string source{};
  bool explicit_choice = false;  // else it was meant for MPI in the first place
};

/// Each member names its variables: Kolo's, then Horovod's of the same meaning.
struct Settings {
  /// KOLO_FUSION_THRESHOLD, HOROVOD_FUSION_THRESHOLD: bytes.
  std::int64_t fusion_threshold = 64 << 20;
  /// KOLO_STALL_WARNING, HOROVOD_STALL_CHECK_TIME_SECONDS: seconds, 0 for never.
  std::chrono::nanoseconds stall_warning = std::chrono::seconds(60);
  /// KOLO_STALL_SHUTDOWN, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS: seconds, 0 for never.
  std::chrono::nanoseconds stall_shutdown{};
  /// KOLO_CACHE_CAPACITY, HOROVOD_CACHE_CAPACITY: names.
  std::int64_t cache_capacity = 8192;
  /// KOLO_PLAN_REPLAY: on or off.
  bool plan_replay = true;
  /// KOLO_CPU_OPERATIONS.
  CpuOperations cpu_operations = CpuOperations::automatic;
  /// KOLO_MPI_COLLECTIVES: whether MPI's own are used.
  bool mpi_collectives = false;
  /// KOLO_HOST_ALLREDUCE: auto, direct, ring or doubling.
  HostAllreduce host_allreduce = HostAllreduce::automatic;
  /// KOLO_SINGLE_COPY: auto, on or off.
  SingleCopy single_copy = SingleCopy::off;
  /// KOLO_GPU_OPERATIONS: auto, nccl or staged.
  GpuOperations gpu_operations = GpuOperations::automatic;
  /// KOLO_NCCL_TIMEOUT: seconds.
  std::chrono::nanoseconds nccl_timeout = std::chrono::minutes(5);
  /// KOLO_FLIGHT_RECORDER: events that are kept, 0 for none.
  std::int64_t flight_recorder = 4096;
  /// KOLO_FLIGHT_RECORDER_DIR: where records of failures go; off for none.
  std::string flight_recorder_dir = ".";
  /// KOLO_FLIGHT_RECORDER_SIGNAL: asks for a record; 0 for none.
  int flight_recorder_signal = 0;
  /// KOLO_TIMELINE, HOROVOD_TIMELINE: a path, "" for none.
  std::string timeline{};
  /// KOLO_STATISTICS: where they go at the end, a path or stderr; "" for nowhere.
  std::string statistics{};
  /// KOLO_CONTROL_INTERFACE, else Open MPI's btl_tcp_if_include.
  ControlInterface control_interface{};
  /// KOLO_PEER_TIMEOUT: seconds, 0 for never.
  std::chrono::nanoseconds peer_timeout = std::chrono::seconds(30);
  /// KOLO_LOG_LEVEL, HOROVOD_LOG_LEVEL.
  LogLevel log_level = LogLevel::warning;
  /// KOLO_TEST_RANKS_PER_HOST, for tests: divides a host into several of so many ranks. 0: as it
  /// is.
  std::int64_t test_ranks_per_host = 0;
};

/// Throws InvalidArgument, with variable (or option) and value, for the first that cannot be used.
[[nodiscard]] Settings read_settings(const SessionOptions& options);

}  // namespace kolo::session
