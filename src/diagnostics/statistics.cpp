// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>
#include <ostream>

#include "base/format.hpp"
#include "diagnostics/counters.hpp"

namespace kolo {
namespace {

using internal::diagnostics::in_bytes;

std::string in_time(double nanoseconds) {
  if (nanoseconds < 1e3) return fmt::format("{:.0f} ns", nanoseconds);
  if (nanoseconds < 1e6) return fmt::format("{:.1f} us", nanoseconds / 1e3);
  if (nanoseconds < 1e9) return fmt::format("{:.1f} ms", nanoseconds / 1e6);
  return fmt::format("{:.1f} s", nanoseconds / 1e9);
}

std::string in_numbers(double number) { return fmt::format("{:.1f}", number); }

template <typename Format>
void add_row(fmt::memory_buffer& out, const char* what, const Histogram& values, Format format) {
  if (values.count == 0) return;
  fmt::format_to(
      std::back_inserter(out), "{:<22}{:>12}{:>12}{:>12}{:>12}{:>12}\n", what, values.count,
      format(values.mean()), format(static_cast<double>(values.quantile(0.5))),
      format(static_cast<double>(values.quantile(0.99))), format(static_cast<double>(values.max)));
}

}  // namespace

double Histogram::mean() const noexcept {
  return count == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(count);
}

/// The upper bound of the bucket in which the quantile lies; bucket i holds values of i binary
/// digits.
std::uint64_t Histogram::quantile(double q) const noexcept {
  std::uint64_t all = 0;  // not `count`, which may have been read at another moment
  for (const std::uint64_t bucket : buckets) all += bucket;
  const double wanted = q * static_cast<double>(all);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    below += buckets[i];
    if (buckets[i] > 0 && static_cast<double>(below) >= wanted)
      return std::min(max, (std::uint64_t{1} << i) - 1);
  }
  return 0;
}

std::string to_string(const Statistics& statistics) {
  fmt::memory_buffer out;
  const auto add = [&](const auto&... values) {
    fmt::format_to(std::back_inserter(out), values...);
  };
  add(fmt::runtime("operations: {} submitted, {} finished, {} failed\n"), statistics.submitted,
      statistics.finished, statistics.failed);
  for (const Statistics::Kind& kind : statistics.kinds)
    add(fmt::runtime("  {}: {}, {}\n"), kind.operation, kind.operations,
        in_bytes(static_cast<double>(kind.bytes)));
  add(fmt::runtime("batches: {}, of them {} from {} plans\n"), statistics.batches,
      statistics.plan_batches, statistics.plans);
  add(fmt::runtime("control messages: {} sent ({}), {} received ({}); {} wakes\n"),
      statistics.messages_sent, in_bytes(static_cast<double>(statistics.message_bytes_sent)),
      statistics.messages_received,
      in_bytes(static_cast<double>(statistics.message_bytes_received)), statistics.wakes);
  add(fmt::runtime("{:<22}{:>12}{:>12}{:>12}{:>12}{:>12}\n"), "", "count", "mean",
      "half <=", "99% <=", "max");
  add_row(out, "operations of a batch", statistics.batch_operations, in_numbers);
  add_row(out, "bytes of a batch", statistics.batch_bytes, in_bytes);
  add_row(out, "negotiation", statistics.negotiation, in_time);
  add_row(out, "execution of a batch", statistics.execution, in_time);
  add_row(out, "  packing", statistics.packing, in_time);
  add_row(out, "  reducing", statistics.reducing, in_time);
  add_row(out, "  unpacking", statistics.unpacking, in_time);
  add_row(out, "  waiting", statistics.waiting, in_time);
  return fmt::to_string(out);
}

std::ostream& operator<<(std::ostream& out, const Statistics& statistics) {
  return out << to_string(statistics);
}

}  // namespace kolo

namespace kolo::internal::diagnostics {

std::string in_bytes(double bytes) {
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024.0 && unit + 1 < units.size(); ++unit) bytes /= 1024.0;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

Statistics Counters::read() const {
  Statistics all;
  all.submitted = submitted.get();
  all.failed = failed.get();
  for (std::size_t type = 0; type < by_type.size(); ++type) {
    const std::uint64_t operations = by_type[type].operations.get();
    all.finished += operations;
    if (operations > 0)
      all.kinds.push_back({std::string(internal::to_string(static_cast<OperationType>(type))),
                           operations, by_type[type].bytes.get()});
  }
  all.batches = batches.get();
  all.plans = plans.get();
  all.plan_batches = plan_batches.get();
  all.messages_sent = messages_sent.get();
  all.message_bytes_sent = message_bytes_sent.get();
  all.messages_received = messages_received.get();
  all.message_bytes_received = message_bytes_received.get();
  all.wakes = wakes.get();
  all.batch_operations = batch_operations.read();
  all.batch_bytes = batch_bytes.read();
  all.negotiation = negotiation.read();
  all.execution = execution.read();
  all.packing = packing.read();
  all.reducing = reducing.read();
  all.unpacking = unpacking.read();
  all.waiting = waiting.read();
  return all;
}

}  // namespace kolo::internal::diagnostics
