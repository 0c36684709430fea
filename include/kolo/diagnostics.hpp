// What a session did, and records of it: statistics, timelines, flight records.
//
// Every function here may be called by any thread during a session, and throws NotInitialized
// outside one. docs/diagnosing.md shows how to read what they write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

/// How often values of each size came. Values are counted by their number of binary digits.
struct Histogram {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  std::uint64_t max = 0;
  /// `buckets[i]` counts the values from 2^(i-1) to 2^i - 1; `buckets[0]` counts zeros.
  std::array<std::uint64_t, 64> buckets{};

  /// 0 if there are no values.
  [[nodiscard]] KOLO_EXPORT double mean() const noexcept;
  /// No more than this are a part `q`, from 0 to 1, of the values: the upper end of a bucket, so up
  /// to twice the value itself. 0 if there are no values.
  [[nodiscard]] KOLO_EXPORT std::uint64_t quantile(double q) const noexcept;
};

/// Since the session began, on this rank. What an operation is in one number need not be in another
/// yet: numbers are read while others count.
struct Statistics {
  struct Kind {
    std::string operation;         ///< "allreduce", "broadcast", ...
    std::uint64_t operations = 0;  ///< That succeeded.
    std::uint64_t bytes = 0;       ///< Of this rank's tensors in them.
  };

  std::uint64_t submitted = 0;  ///< Operations; a group counts once.
  std::uint64_t finished = 0;   ///< Those that succeeded.
  std::uint64_t failed = 0;     ///< Those that got an error.
  std::vector<Kind> kinds{};    ///< Of those that succeeded; only kinds that came.

  std::uint64_t batches = 0;       ///< That this rank executed.
  std::uint64_t plans = 0;         ///< That began.
  std::uint64_t plan_batches = 0;  ///< Batches that came from plans, without negotiation.

  std::uint64_t messages_sent = 0;           ///< Control messages; data is not among them.
  std::uint64_t message_bytes_sent = 0;      ///< Bytes.
  std::uint64_t messages_received = 0;       ///< Control messages.
  std::uint64_t message_bytes_received = 0;  ///< Bytes.
  std::uint64_t wakes = 0;  ///< How often a thread that drove the session had slept before.

  Histogram batch_operations{};  ///< Operations of a batch.
  Histogram batch_bytes{};       ///< Bytes of a batch on this rank.
  Histogram negotiation{};  ///< Nanoseconds of an operation from submission until agreed upon: so
                            ///< how long it waited for other ranks to submit it too.
  Histogram execution{};    ///< Nanoseconds of a batch from then until it was done.

  // Only of batches that ran while a timeline was written, or with the setting `statistics`: all in
  // nanoseconds of a batch.
  Histogram packing{};    ///< Copying tensors to where other ranks read them.
  Histogram reducing{};   ///< Arithmetic.
  Histogram unpacking{};  ///< Copying results into tensors.
  Histogram waiting{};    ///< The rest of its execution: for other ranks, or its turn.
};

/// What this rank did since its session began.
[[nodiscard]] KOLO_EXPORT Statistics statistics();

/// A table in plain text, for people.
[[nodiscard]] KOLO_EXPORT std::string to_string(const Statistics& statistics);
KOLO_EXPORT std::ostream& operator<<(std::ostream& out, const Statistics& statistics);

/// Writes what this rank does from now on into `path`, as JSON for chrome://tracing or
/// ui.perfetto.dev. `%r` in `path` stands for the rank. Without it rank 0 writes and all others do
/// nothing. Throws InvalidArgument if a timeline is being written already, or the file cannot be
/// made.
KOLO_EXPORT void start_timeline(const std::string& path);

/// Ends the timeline and its file. Does nothing if there is none. Throws BackendError if something
/// could not be written.
KOLO_EXPORT void stop_timeline();

/// Writes this rank's last events into `path`; `""`: into the setting `flight_recorder_dir`, under
/// the name that records of failures have. Returns the path. Throws InvalidArgument if the setting
/// `flight_recorder` is 0 or the file cannot be written.
KOLO_EXPORT std::string write_flight_record(const std::string& path = "");

}  // namespace kolo
