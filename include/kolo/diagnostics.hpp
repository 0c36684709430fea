// SPDX-License-Identifier: Apache-2.0
// Statistics, timelines and flight records of a session.
//
// The functions that need a session are thread-safe, and throw NotInitialized outside one.
// docs/diagnosing.md explains their output.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

/// A histogram with one bucket per number of binary digits.
struct Histogram {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  std::uint64_t max = 0;
  /// `buckets[i]` counts the values from 2^(i-1) to 2^i - 1; `buckets[0]` counts zeros.
  std::array<std::uint64_t, 64> buckets{};

  /// The mean of the values; 0 if there are none.
  [[nodiscard]] KOLO_EXPORT double mean() const noexcept;
  /// An upper bound of the `q`-quantile, with `q` from 0 to 1: the upper end of its bucket, at most
  /// twice the quantile. 0 if there are no values.
  [[nodiscard]] KOLO_EXPORT std::uint64_t quantile(double q) const noexcept;
};

/// Counters of this rank since the session began. Other threads may update them during the call, so
/// an operation may be included in one counter but not yet in another.
struct Statistics {
  struct Kind {
    std::string operation;         ///< "allreduce", "broadcast", ...
    std::uint64_t operations = 0;  ///< Operations that succeeded.
    std::uint64_t bytes = 0;       ///< Size of this rank's tensors in them.
  };

  std::uint64_t submitted = 0;  ///< Operations submitted; a group counts once.
  std::uint64_t finished = 0;   ///< Operations that succeeded.
  std::uint64_t failed = 0;     ///< Operations that failed.
  std::vector<Kind> kinds{};    ///< Operations that succeeded, by kind.

  std::uint64_t batches = 0;       ///< Batches that this rank executed.
  std::uint64_t plans = 0;         ///< Plans (repeated steps) that began; see `plan_replay`.
  std::uint64_t plan_batches = 0;  ///< Batches executed by plans, without negotiation.

  std::uint64_t messages_sent = 0;           ///< Control messages; tensor data is not included.
  std::uint64_t message_bytes_sent = 0;      ///< Bytes in them.
  std::uint64_t messages_received = 0;       ///< Control messages.
  std::uint64_t message_bytes_received = 0;  ///< Bytes in them.
  std::uint64_t wakes = 0;  ///< Times that the thread running the session woke from sleep.

  Histogram batch_operations{};  ///< Operations per batch.
  Histogram batch_bytes{};       ///< Bytes per batch, on this rank.
  /// Nanoseconds per operation from submission to agreement: mostly the wait for other ranks to
  /// submit it too.
  Histogram negotiation{};
  Histogram execution{};  ///< Nanoseconds per batch from agreement to completion.

  // Nanoseconds per batch. Measured only while a timeline is written, or with the setting
  // `statistics`.
  Histogram packing{};    ///< Copying tensors to shared or send buffers.
  Histogram reducing{};   ///< Arithmetic.
  Histogram unpacking{};  ///< Copying results into tensors.
  Histogram waiting{};    ///< The rest: waiting for other ranks or for earlier batches.
};

/// The statistics of this rank.
[[nodiscard]] KOLO_EXPORT Statistics statistics();

/// A plain-text table. Needs no session.
[[nodiscard]] KOLO_EXPORT std::string to_string(const Statistics& statistics);
KOLO_EXPORT std::ostream& operator<<(std::ostream& out, const Statistics& statistics);

/// Starts to write a timeline of this rank to the file `path`, as JSON for chrome://tracing or
/// ui.perfetto.dev. `%r` in `path` is replaced by the rank; without it, only rank 0 writes. Throws
/// InvalidArgument if a timeline is already being written or the file cannot be created.
KOLO_EXPORT void start_timeline(const std::string& path);

/// Ends the timeline and closes its file. No effect without a timeline. Throws BackendError if a
/// write failed.
KOLO_EXPORT void stop_timeline();

/// Writes this rank's recent events to the file `path`, or, for `""`, to
/// `kolo-flight-<session>-<rank>.jsonl` in the directory of the setting `flight_recorder_dir`.
/// Returns the path. Throws InvalidArgument if `flight_recorder` is 0 or if writing fails.
KOLO_EXPORT std::string write_flight_record(const std::string& path = "");

}  // namespace kolo
