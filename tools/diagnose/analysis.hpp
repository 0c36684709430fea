// SPDX-License-Identifier: Apache-2.0
// What the records of a session's ranks say together.
#pragma once

#include <string>
#include <vector>

#include "record.hpp"

namespace diagnose {

/// Of an operation that is pending somewhere.
struct Waiting {
  Key key{};
  std::string details{};
  double seconds = 0.0;           // the longest that a rank has waited
  std::vector<int> pending_on{};  // submitted, not agreed upon
  std::vector<int> executing_on{};
  std::vector<int> done_on{};
  std::vector<int> absent_on{};  // not submitted
};

struct Finding {
  enum class Kind {
    no_record,      // the culprits left none
    not_submitted,  // by the culprits
    mismatch,       // what the ranks submitted under one name differs
    unfinished,     // a batch runs on some ranks and is over, or not begun, on others
    diverged,       // the order of submission
    silent,         // the culprits' last event is much older than the others'
    fault,          // what the ranks were told
  };

  Kind kind;
  std::vector<int> culprits{};
  std::string text;
  std::vector<Waiting> operations{};
};

struct Diagnosis {
  std::string session{};
  int size = 0;
  std::vector<int> missing{};       // ranks without a record
  std::vector<Finding> findings{};  // the most telling first
  std::string verdict{};
};

/// `records` are of one session and of different ranks, ascending; at least one.
[[nodiscard]] Diagnosis analyze(const std::vector<Record>& records);

[[nodiscard]] const char* to_string(Finding::Kind kind);
/// "rank 3", "ranks 0-2, 5".
[[nodiscard]] std::string in_words(const std::vector<int>& ranks);

}  // namespace diagnose
