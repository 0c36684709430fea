// The flight record as a file: lines of JSON. docs/diagnosing.md describes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "diagnostics/recorder.hpp"

namespace kolo::diagnostics {

inline constexpr int flight_record_version = 1;

struct RecordHeader {
  std::uint64_t session = 0;  // the same on all ranks
  int rank = 0;
  int size = 1;
  std::string reason{};  // why it is written
};

/// An operation that is not done.
struct PendingOperation {
  Tag tag;
  const Descriptor* descriptor = nullptr;
  bool executing = false;   // else it is negotiated
  std::uint64_t batch = 0;  // if it is executing
};

/// Puts it in place of what is at `path` when it is whole. By who holds the driver's token. Throws
/// InvalidArgument if that cannot be done.
void write_flight_record(const std::string& path, const RecordHeader& header,
                         const Recorder& recorder, const std::vector<PendingOperation>& pending);

/// The file's name: all ranks of a session begin theirs alike.
[[nodiscard]] std::string flight_record_name(std::uint64_t session, int rank);

}  // namespace kolo::diagnostics
