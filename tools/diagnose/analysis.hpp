// SPDX-License-Identifier: Apache-2.0
// Compares the flight records of a session's ranks.
#pragma once

#include <string>
#include <vector>

#include "record.hpp"

namespace diagnose {

/// The state of an operation that is pending on at least one rank.
struct Waiting {
  Key key{};
  std::string details{};
  double seconds = 0.0;           // longest wait of any rank
  std::vector<int> pending_on{};  // submitted, but not agreed yet
  std::vector<int> executing_on{};
  std::vector<int> done_on{};
  std::vector<int> absent_on{};  // not submitted
};

struct Finding {
  enum class Kind {
    no_record,      // the culprits left no record
    not_submitted,  // the culprits have not submitted an operation
    mismatch,       // the arguments of an operation differ between ranks
    unfinished,     // a batch runs on some ranks and is over, or not begun, on others
    diverged,       // the order of submission differs
    silent,         // the culprits' last event is much older than the others'
    fault,          // a failure that was reported to the ranks
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
  std::vector<Finding> findings{};  // the most informative first
  std::string verdict{};
};

/// Finds out why the ranks wait. `records` has at least one record, all of one session, in
/// ascending order of distinct ranks.
[[nodiscard]] Diagnosis analyze(const std::vector<Record>& records);

[[nodiscard]] const char* to_string(Finding::Kind kind);
/// "rank 3", "ranks 0-2, 5".
[[nodiscard]] std::string in_words(const std::vector<int>& ranks);

}  // namespace diagnose
