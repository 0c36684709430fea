// SPDX-License-Identifier: Apache-2.0
// A flight record as it is read from its file.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace diagnose {

/// Names file and line.
class ReadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What ranks' submissions are matched by.
struct Key {
  std::uint64_t round = 0;
  std::int64_t set = 0;
  std::string name{};  // "": none
  std::uint64_t count = 0;

  friend auto operator<=>(const Key&, const Key&) = default;
};

enum class State { negotiating, executing, finished, failed };

struct Operation {
  State state = State::negotiating;
  std::int64_t submitted_ns = 0;
  std::string type{};
  std::string dtype{};  // "": not known
  std::int64_t bytes = 0;
  std::string details{};  // of pending ones
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
  std::int64_t ns = 0;       // when it was written, as its events have it
  std::int64_t wall_ns = 0;  // the same since 1970
  std::int64_t last_ns = 0;  // the last event
  std::uint64_t events = 0;  // ever
  std::uint64_t submitted = 0;
  std::uint64_t finished = 0;

  using NameKey = std::pair<std::int64_t, std::string>;  // set, name
  struct Name {
    std::uint64_t round = 0;
    std::uint64_t submitted = 0;  // in this round
  };
  std::map<NameKey, Name> names{};
  std::map<Key, Operation> operations{};  // that it still knows of
  std::vector<Key> order{};               // of their submission
  std::vector<Note> notes{};

  /// True if this rank has submitted it, whether that is still in the record or not.
  [[nodiscard]] bool has_submitted(const Key& key) const;
  [[nodiscard]] bool waits_in_join() const;
  /// To compare what ranks say of the time.
  [[nodiscard]] double seconds_before_end(std::int64_t event_ns) const {
    return static_cast<double>(ns - event_ns) * 1e-9;
  }
};

/// Throws ReadError.
[[nodiscard]] Record read_record(const std::string& path);

/// `"gradient" (number 20)`, `#3`; with the process set if it is not the world.
[[nodiscard]] std::string to_string(const Key& key);

}  // namespace diagnose
