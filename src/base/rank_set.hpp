// SPDX-License-Identifier: Apache-2.0
// A set of ranks, kept as ranges: a thousand consecutive ranks take eight bytes.
#pragma once

#include <string>
#include <vector>

namespace kolo::internal {

class RankSet {
 public:
  struct Range {
    int first;
    int last;  // inclusive
    friend bool operator==(const Range&, const Range&) = default;
  };

  RankSet() = default;
  /// The ranks `first` to `last`, both included.
  static RankSet range(int first, int last);
  static RankSet of(int rank) { return range(rank, rank); }
  /// The ranks may come in any order and more than once.
  static RankSet of(const std::vector<int>& ranks);

  void insert(const RankSet& other);
  [[nodiscard]] bool contains(int rank) const;
  [[nodiscard]] int count() const;
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  /// The ranks of 0 .. size-1 that are not in this set.
  [[nodiscard]] RankSet complement(int size) const;
  [[nodiscard]] RankSet without(const RankSet& others) const;
  [[nodiscard]] RankSet common(const RankSet& others) const;
  [[nodiscard]] std::vector<int> to_vector() const;
  /// Ascending, disjoint, not adjacent.
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }

  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  /// Adds a range. Call it in ascending order of the ranges' first ranks.
  void append(const Range& next);

  std::vector<Range> ranges_;
};

/// The spelling in messages: "0-2, 5".
[[nodiscard]] std::string to_string(const RankSet& ranks);
/// Text such as "rank 3" or "ranks 0-2, 5".
[[nodiscard]] std::string ranks_in_words(const RankSet& ranks);

}  // namespace kolo::internal
