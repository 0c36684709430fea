// The library's life in a process: start, end, and which rank this is.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "kolo/export.hpp"

namespace kolo {

/// Settings of a session. An empty one comes from the environment: `KOLO_<NAME>`, else Horovod's
/// variable of the same meaning, else the default. docs/settings.md lists them.
struct SessionOptions {
  /// Largest batch, in bytes, of tensors that travel together. 0 or 1: every tensor travels alone.
  /// Default 64 MiB.
  std::optional<std::int64_t> fusion_threshold{};
  /// Time until a rank reports what is pending and which ranks are missing. 0: never. Default 60 s.
  std::optional<std::chrono::duration<double>> stall_warning{};
  /// Time until pending operations fail with Stalled. 0: never, the default.
  std::optional<std::chrono::duration<double>> stall_shutdown{};
  /// Repeating names that are sent as one bit each. Default 8192.
  std::optional<std::int64_t> cache_capacity{};
  /// Whether steps that repeat on one host are executed without negotiating them each time. Default
  /// true.
  std::optional<bool> plan_replay{};
  /// What carries data between CPUs: `auto`, the default, `shm` (refused where ranks of a host
  /// cannot share memory) or `mpi`. One rank's `mpi` holds for all of its host.
  std::optional<std::string> cpu_operations{};
  /// How allreduces go from host to host where hosts have several ranks: `auto`, the default, which
  /// measures at the start; `direct`, `ring` or `doubling`. The order in which hosts are combined
  /// depends on it, and so do the last bits of sums. Rank 0's counts.
  std::optional<std::string> host_allreduce{};
  /// What carries tensors on GPUs: `auto`, the default, NCCL where it can be used; `nccl`, and an
  /// error where it cannot; `staged`, through the memory of the hosts.
  std::optional<std::string> gpu_operations{};
  /// Timeout for creating an NCCL communicator. Default 5 minutes.
  std::optional<std::chrono::duration<double>> nccl_timeout{};
  /// Most recent events that each rank keeps, to write them when something fails. 0: none. Default
  /// 4096.
  std::optional<std::int64_t> flight_recorder{};
  /// Directory in which they are written then; `off`: nowhere. Default the working directory.
  std::optional<std::string> flight_recorder_dir{};
  /// A signal that makes a rank write them: USR1, USR2, HUP, QUIT or WINCH. Default none.
  std::optional<std::string> flight_recorder_signal{};
  /// Path of a timeline that begins with the session; see `start_timeline`. Default none.
  std::optional<std::string> timeline{};
  /// Where this rank's statistics are written when the session ends: `stderr`, or a path as for
  /// `timeline`. Default nowhere.
  std::optional<std::string> statistics{};
  /// What carries control messages between hosts: interfaces and networks such as
  /// `eth0,10.1.0.0/16`, or `none` for MPI, which is then polled. Default: all that are up.
  std::optional<std::string> control_interface{};
  /// A host that sends nothing for this long is lost, which ends the session with PeerLeft. 0:
  /// never. Default 30 s. Rank 0's counts.
  std::optional<std::chrono::duration<double>> peer_timeout{};
  /// trace, debug, info, warning, error, critical or off. Default warning.
  std::optional<std::string> log_level{};
};

/// Starts the session, and ends it at the end of scope. One at a time in a process.
///
/// If the scope ends because of an exception, or the exception is never caught, the other ranks are
/// told: each that waits or calls again gets PeerLeft, which names this rank.
class [[nodiscard]] KOLO_EXPORT Session {
 public:
  Session();
  explicit Session(const SessionOptions& options);
  /// MPI may take its own arguments from `argc` and `argv`. See `init` for errors.
  Session(int argc, char** argv, const SessionOptions& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

 private:
  int exceptions_at_start_;
};

/// Starts the session; collective over all ranks. Initializes MPI on this thread unless the program
/// did. Throws InvalidArgument for a setting that cannot be used (on all ranks, naming those that
/// have it), for a second session, and where MPI was initialized with too little thread support.
/// After a refusal the process may try again.
KOLO_EXPORT void init(const SessionOptions& options = {});
KOLO_EXPORT void init(int argc, char** argv, const SessionOptions& options = {});

/// Ends the session: this rank leaves, and its pending operations fail with ShutDown if their peers
/// have not submitted them. Returns when all ranks have left. Does nothing if there is no session.
KOLO_EXPORT void shutdown();

[[nodiscard]] KOLO_EXPORT bool initialized() noexcept;

/// This rank, and how many there are. All of these throw NotInitialized outside a session.
[[nodiscard]] KOLO_EXPORT int rank();
[[nodiscard]] KOLO_EXPORT int size();
/// Among the ranks of this host.
[[nodiscard]] KOLO_EXPORT int local_rank();
[[nodiscard]] KOLO_EXPORT int local_size();
/// This host among the hosts that have a rank of this `local_rank`.
[[nodiscard]] KOLO_EXPORT int cross_rank();
[[nodiscard]] KOLO_EXPORT int cross_size();
/// True if every host has the same number of ranks.
[[nodiscard]] KOLO_EXPORT bool homogeneous();

/// What carries data between CPUs in this session: `shm`, `mpi`, or `shm+mpi` where it is memory
/// inside a host and MPI between hosts.
[[nodiscard]] KOLO_EXPORT std::string cpu_operations();

/// What this library was built with.
struct BuildInfo {
  std::string version;      ///< Kolo's own, e.g. "0.1.0".
  std::string mpi_library;  ///< What the MPI library calls itself.
  std::string cuda;         ///< Of the toolkit that it was built with, e.g. "13.0", or "".
  std::string nccl;         ///< The same, e.g. "2.28.9".
};

/// Needs no session.
[[nodiscard]] KOLO_EXPORT BuildInfo build_info();

}  // namespace kolo
