// SPDX-License-Identifier: Apache-2.0
// Statistics, timelines and flight records of a session, and the libraries of this build.
//
// The functions are thread-safe and not collective. Those that need a session return
// KOLO_NOT_INITIALIZED outside one. docs/diagnosing.md explains their output. Settings are given to
// `kolo_init` by their names (kolo/c/session.h).
#ifndef KOLO_C_DIAGNOSTICS_H
#define KOLO_C_DIAGNOSTICS_H

#include "kolo/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A histogram with one bucket per number of binary digits. Never changes.
typedef struct kolo_histogram {
  uint64_t count;
  uint64_t sum;
  uint64_t max;
  /// `buckets[i]` counts the values from 2^(i-1) to 2^i - 1; `buckets[0]` counts zeros.
  uint64_t buckets[64];
} kolo_histogram;

/// The mean of the values; 0 if there are none, or for null. Needs no session.
KOLO_C_EXPORT double kolo_histogram_mean(const kolo_histogram* histogram);
/// An upper bound of the `q`-quantile, with `q` from 0 to 1: the upper end of its bucket, at most
/// twice the quantile. 0 if there are no values, or for null. Needs no session.
KOLO_C_EXPORT uint64_t kolo_histogram_quantile(const kolo_histogram* histogram, double q);

/// Counters of this rank since the session began. Other threads may update them during the call, so
/// an operation may be included in one counter but not yet in another. A newer version may add
/// members at the end.
typedef struct kolo_statistics {
  uint64_t submitted;  ///< Operations submitted; a group counts once.
  uint64_t finished;   ///< Operations that succeeded.
  uint64_t failed;     ///< Operations that failed.

  uint64_t batches;       ///< Batches that this rank executed.
  uint64_t plans;         ///< Plans (repeated steps) that began; see `plan_replay`.
  uint64_t plan_batches;  ///< Batches executed by plans, without negotiation.

  uint64_t messages_sent;           ///< Control messages; tensor data is not included.
  uint64_t message_bytes_sent;      ///< Bytes in them.
  uint64_t messages_received;       ///< Control messages.
  uint64_t message_bytes_received;  ///< Bytes in them.
  uint64_t wakes;                   ///< Times that the thread running the session woke from sleep.

  kolo_histogram batch_operations;  ///< Operations per batch.
  kolo_histogram batch_bytes;       ///< Bytes per batch, on this rank.
  /// Nanoseconds per operation from submission to agreement: mostly the wait for other ranks to
  /// submit it too.
  kolo_histogram negotiation;
  kolo_histogram execution;  ///< Nanoseconds per batch from agreement to completion.

  // Nanoseconds per batch. Measured only while a timeline is written, or with the setting
  // `statistics`.
  kolo_histogram packing;    ///< Copying tensors to shared or send buffers.
  kolo_histogram reducing;   ///< Arithmetic.
  kolo_histogram unpacking;  ///< Copying results into tensors.
  kolo_histogram waiting;    ///< The rest: waiting for other ranks or for earlier batches.
} kolo_statistics;

/// Writes this rank's statistics. `size` is sizeof(kolo_statistics), by which the library knows the
/// members of the program's struct; members that the library lacks are set to 0.
KOLO_C_EXPORT kolo_status kolo_read_statistics(kolo_statistics* statistics, size_t size);

/// The operations of one kind, such as "allreduce" or "broadcast", that succeeded on this rank, and
/// the size of this rank's tensors in them: 0 for a kind of which there were none. Either pointer
/// may be null.
KOLO_C_EXPORT kolo_status kolo_read_kind_statistics(const char* operation, uint64_t* operations,
                                                    uint64_t* bytes);

/// All statistics as a plain-text table, as a string like that of `kolo_cpu_operations`. They may
/// grow between two calls.
KOLO_C_EXPORT kolo_status kolo_statistics_text(char* text, size_t capacity, size_t* length);

/// Starts to write a timeline of this rank to the file `path`, as JSON for chrome://tracing or
/// ui.perfetto.dev. `%r` in `path` is replaced by the rank; without it, only rank 0 writes.
/// KOLO_INVALID_ARGUMENT if a timeline is already being written or the file cannot be created.
KOLO_C_EXPORT kolo_status kolo_start_timeline(const char* path);

/// Ends the timeline and closes its file. No effect without a timeline. KOLO_BACKEND_ERROR if a
/// write failed.
KOLO_C_EXPORT kolo_status kolo_stop_timeline(void);

/// Writes this rank's recent events to the file `path`, or, for null, to
/// `kolo-flight-<session>-<rank>.jsonl` in the directory of the setting `flight_recorder_dir`. The
/// path is written as a string like that of `kolo_cpu_operations`. KOLO_INVALID_ARGUMENT if the
/// setting `flight_recorder` is 0 or if writing fails.
KOLO_C_EXPORT kolo_status kolo_write_flight_record(const char* path, char* text, size_t capacity,
                                                   size_t* length);

/// The libraries that Kolo was built with. The strings last forever. A newer version may add
/// members at the end.
typedef struct kolo_build {
  const char* version;      ///< Version of Kolo, such as "0.1.0".
  const char* mpi_library;  ///< Name and version that MPI reports; "" without MPI.
  const char* cuda;         ///< Version of the CUDA toolkit, such as "13.0"; "" without CUDA.
  const char* nccl;         ///< Version of NCCL, such as "2.28.9"; "" without NCCL.
} kolo_build;

/// Writes the libraries of this build. `size` is sizeof(kolo_build); see `kolo_read_statistics`.
/// Needs no session.
KOLO_C_EXPORT kolo_status kolo_read_build(kolo_build* build, size_t size);

#ifdef __cplusplus
}
#endif

#endif
