// SPDX-License-Identifier: Apache-2.0
// A flight record, parsed from its file.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace diagnose {

/// A file that cannot be read as a flight record. The message has the file and the line.
class ReadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The key by which ranks match submissions.
struct Key {
  std::uint64_t round = 0;
  std::int64_t set = 0;
  std::string name{};  // "": no name
  std::uint64_t count = 0;

  friend auto operator<=>(const Key&, const Key&) = default;
};

enum class State { negotiating, executing, finished, failed };

struct Operation {
  State state = State::negotiating;
  std::int64_t submitted_ns = 0;
  std::int64_t ended_ns = 0;  // 0: pending
  std::string type{};
  std::string dtype{};  // "": unknown
  std::int64_t bytes = 0;
  std::string details{};  // for pending operations only
  std::int64_t batch = -1;
};

struct Note {
  std::string kind;
  std::int64_t ns;
  std::string text;
};

struct Record {
  std::string file{};
  std::string session{};
  int rank = 0;
  int size = 1;
  std::string host{};
  std::int64_t process = 0;
  std::string reason{};
  std::int64_t ns = 0;       // time of writing, on the clock of the events
  std::int64_t wall_ns = 0;  // the same time, since 1970
  std::int64_t last_ns = 0;  // time of the last event
  std::uint64_t events = 0;  // total number, including events that the record no longer has
  std::uint64_t submitted = 0;
  std::uint64_t finished = 0;

  using NameKey = std::pair<std::int64_t, std::string>;  // set, name
  struct Name {
    std::uint64_t round = 0;
    std::uint64_t submitted = 0;  // number of submissions in this round
  };
  std::map<NameKey, Name> names{};
  std::map<Key, Operation> operations{};           // operations with events in the record
  std::vector<Key> order{};                        // in the order of submission
  std::map<std::int64_t, std::int64_t> started{};  // when batches began, in nanoseconds
  std::vector<Note> notes{};

  /// True if this rank has submitted the operation, even if the record no longer contains it.
  [[nodiscard]] bool has_submitted(const Key& key) const;
  [[nodiscard]] bool waits_in_join() const;
  /// Seconds from an event to the end of this record. Ranks have different clocks, so only such
  /// differences can be compared between ranks.
  [[nodiscard]] double seconds_before_end(std::int64_t event_ns) const {
    return static_cast<double>(ns - event_ns) * 1e-9;
  }
};

/// Reads a flight record. Throws ReadError.
[[nodiscard]] Record read_record(const std::string& path);

/// The operation as messages name it: `"gradient" (number 20)` or `#3`, with the process set if it
/// is not the world.
[[nodiscard]] std::string to_string(const Key& key);

}  // namespace diagnose
