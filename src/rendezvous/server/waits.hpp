// SPDX-License-Identifier: Apache-2.0
// The operations in which the other ranks waited when the first rank of a job failed.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/rank_set.hpp"

namespace kolo::internal::rendezvous {

class Waits {
 public:
  void note(std::int32_t rank, const std::string& operation) {
    ranks_[operation].insert(RankSet::of(rank));
  }
  void clear() { ranks_.clear(); }
  /// "the other ranks waited in allreduce "x"", or which ranks did; "" if nobody waited. `size`:
  /// the number of ranks, including the one that failed first.
  [[nodiscard]] std::string in_words(std::size_t size) const {
    constexpr std::size_t shown = 4;
    const auto waiting = ranks_.size() - ranks_.count("");
    std::string text;
    std::size_t count = 0;
    for (const auto& [operation, ranks] : ranks_) {
      if (operation.empty() || ++count > shown) continue;
      const bool are_all = static_cast<std::size_t>(ranks.count()) + 1 >= size;
      text += fmt::format("{}{} waited in {}", text.empty() ? "" : "; ",
                          are_all ? "the other ranks" : ranks_in_words(ranks), operation);
    }
    if (waiting > shown) text += fmt::format("; others in {} more", waiting - shown);
    return text;
  }

 private:
  std::map<std::string, RankSet> ranks_{};  // by operation; "": in none
};

}  // namespace kolo::internal::rendezvous
