// SPDX-License-Identifier: Apache-2.0
// Sessions: start, end, settings, this rank's place among the ranks and hosts, and stopping all
// ranks after the same step.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kolo/export.hpp"

namespace kolo {

/// Settings of a session. A setting that is left empty is read from the environment: `KOLO_<NAME>`,
/// else Horovod's or Open MPI's variable of the same meaning, else the default. docs/settings.md
/// lists them all.
struct SessionOptions {
  /// Maximum bytes per fused batch. 0 or 1: no fusion. Rank 0's value is used. Default 64 MiB.
  std::optional<std::int64_t> fusion_threshold{};
  /// Time until the session warns about a pending operation and names the missing ranks. 0: never.
  /// Default 60 s.
  std::optional<std::chrono::duration<double>> stall_warning{};
  /// Time until a pending operation fails with Stalled. 0: never. Set it on all ranks. Default 0.
  std::optional<std::chrono::duration<double>> stall_shutdown{};
  /// Maximum number of names in the response cache. A name in the cache is negotiated with one bit.
  /// 0: no cache. Rank 0's value is used. Default 8192.
  std::optional<std::int64_t> cache_capacity{};
  /// On one host, replay repeated steps without negotiation. Rank 0's value is used. Default true.
  std::optional<bool> plan_replay{};
  /// Backend for tensors on CPUs: `auto`, `shm` (an error if the ranks of a host cannot share
  /// memory) or `mpi`. If one rank sets `mpi`, its whole host uses MPI. Default `auto`.
  std::optional<std::string> cpu_operations{};
  /// Transport for data between hosts: `mpi`, `sockets`, `encrypted` (on all ranks), `fabric`, or
  /// `auto`: `mpi` if MPI started the program, else `sockets`. Rank 0's counts. Default `auto`.
  std::optional<std::string> network{};
  /// libfabric provider with connected endpoints, the same on all ranks, for the network `fabric`.
  /// Default `verbs`.
  std::optional<std::string> fabric_provider{};
  /// Backend for tensors on GPUs: `auto` uses NCCL if possible, `nccl` requires NCCL, and `staged`
  /// copies through host memory. Default `auto`.
  std::optional<std::string> gpu_operations{};
  /// Timeout for creating an NCCL communicator. Default 5 minutes.
  std::optional<std::chrono::duration<double>> nccl_timeout{};
  /// Waits for operations on GPU tensors block the host until the GPU is done, instead of making
  /// the current stream wait. Default off.
  std::optional<bool> gpu_blocking_wait{};
  /// Maximum size in bytes of the GPU tensors that NCCL has been given and the GPU has not
  /// finished; a thread that submits more waits. Default 1 GiB.
  std::optional<std::int64_t> gpu_in_flight{};
  /// Number of recent events that each rank keeps and writes to a flight record if something fails.
  /// 0: none. Default 4096.
  std::optional<std::int64_t> flight_recorder{};
  /// Directory for flight records of failures; `off` writes none. Default: the working directory.
  /// Relative paths in all options refer to the working directory at the start of the session.
  std::optional<std::string> flight_recorder_dir{};
  /// Signal on which a rank writes a flight record: USR1, USR2, HUP, QUIT or WINCH. Default: none.
  std::optional<std::string> flight_recorder_signal{};
  /// Path of a timeline that starts with the session; see `start_timeline`. Default: none.
  std::optional<std::string> timeline{};
  /// Destination of this rank's statistics when the session ends: `stderr`, or a path as for
  /// `timeline`. Default: none.
  std::optional<std::string> statistics{};
  /// How much longer than the others a rank must compute in each step for a warning that names it,
  /// in percent of the step. 0 disables the warning. Default: 10.
  std::optional<std::int64_t> straggler_warning{};
  /// Path of a file in which rank 0 keeps the status of the job: JSON, or, if it ends with `.prom`,
  /// Prometheus' text format. Default: none.
  std::optional<std::string> status_file{};
  /// Network interfaces for control messages between hosts: names and networks such as
  /// `eth0,10.1.0.0/16`. `none` sends them over MPI, which Kolo must then poll. Default: all that
  /// are up.
  std::optional<std::string> control_interface{};
  /// Ports at which this rank listens for other ranks, such as `46000:46099`. Default: any.
  std::optional<std::string> port_range{};
  /// Time after which a host that sends nothing is considered lost, which ends the session with
  /// PeerLeft. 0: never. Rank 0's value is used. Default 30 s.
  std::optional<std::chrono::duration<double>> peer_timeout{};
  /// Signals that make `stop_requested` return true: a list, separated by commas, of any of TERM,
  /// INT, USR1, USR2, HUP and XCPU; or `none`. Default `TERM,USR1`.
  std::optional<std::string> stop_signals{};
  /// `trace`, `debug`, `info`, `warning`, `error`, `critical` or `off`. Default `warning`.
  std::optional<std::string> log_level{};
  /// Further settings by their names above, as text: {{"stall_shutdown", "120"}} is the same as the
  /// variable `KOLO_STALL_SHUTDOWN=120`, and precedes it. For values from a file or a command line.
  std::map<std::string, std::string> by_name{};
};

/// Starts the session in its constructor and ends it in its destructor. A process has at most one
/// session at a time.
///
/// If an exception ends the scope, or is never caught, the session ends as failed: pending and
/// later calls on the other ranks throw PeerLeft, which names this rank. The destructor returns
/// when all ranks have left. It knows no exit status: to end the job with one, call `exit` in the
/// scope.
class [[nodiscard]] KOLO_EXPORT Session {
 public:
  Session();
  explicit Session(const SessionOptions& options);
  /// Passes the program's arguments to MPI. All constructors throw the errors of `init`.
  Session(int argc, char** argv, const SessionOptions& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

 private:
  int exceptions_at_start_;
};

/// Starts the session; collective over all ranks. Initializes MPI on this thread unless the program
/// has done so, or the ranks were started without MPI. Throws InvalidArgument for an invalid
/// setting (on all ranks; the message names the ranks that have it), for a second session, if MPI's
/// thread support is insufficient, and if neither MPI nor Kolo supports the launcher. Under
/// kolorun, throws PeerLeft if a rank is lost; you may then call `init` again.
KOLO_EXPORT void init(const SessionOptions& options = {});
KOLO_EXPORT void init(int argc, char** argv, const SessionOptions& options = {});

/// Ends the session: this rank leaves, and its pending operations that other ranks have not
/// submitted fail with ShutDown. Returns when all ranks have left. No effect without a session.
KOLO_EXPORT void shutdown();

/// True during a session.
[[nodiscard]] KOLO_EXPORT bool initialized() noexcept;

/// This rank, from 0, and the number of ranks. All functions from here to `cpu_operations` are
/// thread-safe and throw NotInitialized outside a session.
[[nodiscard]] KOLO_EXPORT int rank();
[[nodiscard]] KOLO_EXPORT int size();
/// This rank's index among the ranks of its host, and their number.
[[nodiscard]] KOLO_EXPORT int local_rank();
[[nodiscard]] KOLO_EXPORT int local_size();
/// This host's index among the hosts that have a rank with this `local_rank`, and their number.
[[nodiscard]] KOLO_EXPORT int cross_rank();
[[nodiscard]] KOLO_EXPORT int cross_size();
/// True if every host has the same number of ranks.
[[nodiscard]] KOLO_EXPORT bool homogeneous();

/// The backend for tensors on CPUs in this session: `shm`, `sockets`, `fabric` or `mpi`. For shared
/// memory within a host and another one between hosts: `shm+sockets`, `shm+fabric` or `shm+mpi`.
[[nodiscard]] KOLO_EXPORT std::string cpu_operations();

/// True if a rank is to stop. Collective over all ranks: call it once per step, at the same place
/// in the loop. All ranks get the same answer in the same call.
///
///     for (; step < steps; ++step) {
///       ...
///       optimizer.step();
///       const bool stops = kolo::stop_requested();
///       if (stops || step % 1000 == 0) checkpoints.save(step, parts);
///       if (stops) break;
///     }
///
/// A rank is to stop once it has called `request_stop`, or has received one of the signals that the
/// setting `stop_signals` names: SIGTERM and SIGUSR1 by default. The first call in the process
/// installs handlers for them. From then on these signals no longer end the process; they still end
/// forked children, and a rank whose launcher has died. A handler that the program has installed
/// before is called too; an ignored signal stays ignored.
///
/// A call returns the result of an agreement that the call before has begun, and that the ranks
/// have reached while they computed: a signal is reported by the second call after it at the
/// latest, and a call rarely waits. The first call of a session, and the first one after `join`,
/// wait for all ranks instead. Once a call has returned true, all later calls of the process do.
///
/// Call it from one thread at a time. All ranks must make their calls of `stop_requested` and
/// `join` in the same order. Throws NotInitialized without a session, and the errors of an
/// allreduce.
[[nodiscard]] KOLO_EXPORT bool stop_requested();

/// Makes `stop_requested` return true on all ranks, as a signal to this rank does. Not collective;
/// needs no session. Thread-safe and async-signal-safe.
KOLO_EXPORT void request_stop() noexcept;

/// The libraries that Kolo was built with.
struct BuildInfo {
  std::string version;      ///< Version of Kolo, e.g. "0.1.0".
  std::string mpi_library;  ///< Name and version that MPI reports; "" without MPI.
  std::string cuda;         ///< Version of the CUDA toolkit, e.g. "13.0"; "" without CUDA.
  std::string nccl;         ///< Version of NCCL, e.g. "2.28.9"; "" without NCCL.
};

/// Returns the libraries that this Kolo was built with. Needs no session.
[[nodiscard]] KOLO_EXPORT BuildInfo build_info();

}  // namespace kolo
