// SPDX-License-Identifier: Apache-2.0
// Implements kolo/c/diagnostics.h.
#include "kolo/diagnostics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "kolo/c/diagnostics.h"
#include "kolo/session.hpp"

namespace kolo::internal::c {
namespace {

kolo_histogram in_c(const Histogram& given) {
  kolo_histogram histogram{given.count, given.sum, given.max, {}};
  static_assert(sizeof histogram.buckets == sizeof given.buckets);
  std::ranges::copy(given.buckets, histogram.buckets);
  return histogram;
}

Histogram in_cpp(const kolo_histogram& given) {
  Histogram histogram{given.count, given.sum, given.max};
  std::ranges::copy(given.buckets, histogram.buckets.begin());
  return histogram;
}

kolo_statistics in_c(const Statistics& given) {
  return {
      .submitted = given.submitted,
      .finished = given.finished,
      .failed = given.failed,
      .batches = given.batches,
      .plans = given.plans,
      .plan_batches = given.plan_batches,
      .messages_sent = given.messages_sent,
      .message_bytes_sent = given.message_bytes_sent,
      .messages_received = given.messages_received,
      .message_bytes_received = given.message_bytes_received,
      .wakes = given.wakes,
      .batch_operations = in_c(given.batch_operations),
      .batch_bytes = in_c(given.batch_bytes),
      .negotiation = in_c(given.negotiation),
      .execution = in_c(given.execution),
      .packing = in_c(given.packing),
      .reducing = in_c(given.reducing),
      .unpacking = in_c(given.unpacking),
      .waiting = in_c(given.waiting),
  };
}

/// No version has results of a larger size.
constexpr std::size_t max_result_size = std::size_t{1} << 16U;

/// Copies a result to a struct of the program, which may be that of an older or of a newer version
/// of this library.
template <typename Result>
void write_result(const Result& result, Result* to, std::size_t size, const char* function) {
  if (size < first_size<Result> || size > max_result_size)
    throw InvalidArgument(
        fmt::format("{}: no version of Kolo has a struct of {} bytes here: pass the size of the "
                    "struct, not of its pointer",
                    function, size));
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &result, std::min(size, sizeof result));
}

}  // namespace

extern "C" {

KOLO_C_EXPORT double kolo_histogram_mean(const kolo_histogram* histogram) {
  return histogram == nullptr ? 0.0 : in_cpp(*histogram).mean();
}

KOLO_C_EXPORT uint64_t kolo_histogram_quantile(const kolo_histogram* histogram, double q) {
  return histogram == nullptr ? 0 : in_cpp(*histogram).quantile(q);
}

KOLO_C_EXPORT kolo_status kolo_read_statistics(kolo_statistics* statistics, size_t size) {
  const char* const function = __func__;
  return guarded([&] {
    not_null(statistics, function, "statistics");
    write_result(in_c(kolo::statistics()), statistics, size, function);
  });
}

KOLO_C_EXPORT kolo_status kolo_read_kind_statistics(const char* operation, uint64_t* operations,
                                                    uint64_t* bytes) {
  const char* const function = __func__;
  return guarded([&] {
    const std::string wanted = &not_null(operation, function, "operation");
    const Statistics all = kolo::statistics();
    const auto found = std::ranges::find(all.kinds, wanted, &Statistics::Kind::operation);
    const Statistics::Kind kind = found == all.kinds.end() ? Statistics::Kind{} : *found;
    if (operations != nullptr) *operations = kind.operations;
    if (bytes != nullptr) *bytes = kind.bytes;
  });
}

KOLO_C_EXPORT kolo_status kolo_statistics_text(char* text, size_t capacity, size_t* length) {
  const char* const function = __func__;
  return guarded(
      [&] { copy_text(to_string(kolo::statistics()), text, capacity, length, function); });
}

KOLO_C_EXPORT kolo_status kolo_start_timeline(const char* path) {
  const char* const function = __func__;
  return guarded([&] { start_timeline(&not_null(path, function, "path")); });
}

KOLO_C_EXPORT kolo_status kolo_stop_timeline() {
  return guarded([] { stop_timeline(); });
}

KOLO_C_EXPORT kolo_status kolo_write_flight_record(const char* path, char* text, size_t capacity,
                                                   size_t* length) {
  const char* const function = __func__;
  return guarded([&] {
    require_room(text, capacity, function, "text");  // before the file is written
    copy_text(write_flight_record(path == nullptr ? "" : path), text, capacity, length, function);
  });
}

KOLO_C_EXPORT kolo_status kolo_read_build(kolo_build* build, size_t size) {
  const char* const function = __func__;
  return guarded([&] {
    // Never destroyed, because the program keeps pointers to the strings.
    static const auto& info = *new BuildInfo(build_info());  // NOLINT
    not_null(build, function, "build");
    write_result(kolo_build{info.version.c_str(), info.mpi_library.c_str(), info.cuda.c_str(),
                            info.nccl.c_str()},
                 build, size, function);
  });
}

}  // extern "C"

}  // namespace kolo::internal::c
