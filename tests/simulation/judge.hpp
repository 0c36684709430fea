// SPDX-License-Identifier: Apache-2.0
// Checks every answer that any rank gets, and throws when a promise is broken. The cost of a check
// is proportional to the operations of the answer; the first check of a batch also to its ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "ledger.hpp"
#include "negotiation/wire/actions.hpp"
#include "negotiation/wire/message.hpp"
#include "program.hpp"
#include "support/campaign.hpp"

namespace kolo::internal::simulation {

using campaign::Violation;

/// Functions throw Violation unless these promises are kept:
///  - any two ranks see their common batches in one order, with the same content, and all orders
///    together have no cycle;
///  - nothing is executed that one of its ranks has not submitted in this form;
///  - every submission has one answer;
///  - all ranks concerned get the same error, which names the ranks that caused it;
///  - nothing is late that has not been pending for long, without the time in which all ranks were
///    stopped, and no rank holds an operation to be pending that no rank has pending.
class Judge {
 public:
  Judge(const Program& program, const std::vector<Operation>& operations, Ledger& ledger);

  void on_execute(int rank, const negotiation::Execute& execute);
  void on_fail(int rank, const negotiation::Fail& fail, Time now);
  void on_answer(int rank, const negotiation::Answer& answer);
  /// `keys`: those that the negotiation of a rank holds to be pending.
  void on_pending(int rank, const std::vector<Key>& keys);
  void on_join(int rank) { at(rank).joins = true; }
  void on_leave(int rank) { at(rank).left = true; }
  void on_lost(int rank) { at(rank).lost = true; }
  /// Checks the final state.
  void conclude() const;

  [[nodiscard]] std::uint64_t answers() const { return answers_; }
  [[nodiscard]] std::uint64_t batches() const { return batches_seen_; }
  [[nodiscard]] std::uint64_t failures() const { return failures_; }

 private:
  struct RankState {
    bool left = false;
    bool lost = false;
    bool joins = false;  // has ever joined
    bool join_failed = false;
    std::optional<std::uint64_t> last_batch{};
    std::vector<std::int64_t> last_to_join{};  // result of each round of joins
    std::vector<std::uint64_t> order{};        // sequence of batches, in small runs
    std::map<Ticket, std::string> promised{};  // failures of which other ranks were told
  };
  struct Batch {
    // keys, and the operation as the first rank saw it
    std::vector<std::pair<KeyNumber, int>> content;
    RankSet ranks;
    int seen = 0;
    int count = 0;
  };
  /// The reason why a set is broken.
  struct Cause {
    FailureKind kind;
    RankSet ranks;
    bool verified = false;
  };

  [[nodiscard]] RankState& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Descriptor& descriptor(int operation) const {
    return operations_[static_cast<std::size_t>(operation)].descriptor;
  }
  [[nodiscard]] bool same(int a, int b) const { return a == b || descriptor(a) == descriptor(b); }
  const Ledger::Submission& pending(int rank, Ticket ticket, const char* answer) const;
  [[nodiscard]] std::string name(int rank, Ticket ticket) const;

  void check_first(Batch& batch, int rank, const negotiation::Execute& execute) const;
  void check_members(const negotiation::Execute& execute);
  void check_mismatch(int rank, const negotiation::Fail& fail);
  [[nodiscard]] bool is_cause_of_world(int rank, const Failure& failure) const;
  void check_removal(int rank, const negotiation::Fail& fail);
  void check_cause(int rank, const negotiation::Fail& fail, Time now);
  void check_stall(KeyNumber key, const RankSet& missing, Time now) const;
  void check_age(KeyNumber key, Time now) const;
  [[nodiscard]] std::variant<negotiation::Readiness, int> submitted(KeyNumber key,
                                                                    const RankSet& ranks) const;
  void check_acyclic() const;

  const Program& program_;
  const std::vector<Operation>& operations_;
  Ledger& ledger_;
  bool small_;
  std::vector<RankState> ranks_;
  std::map<SetId, RankSet> sets_;
  std::unordered_map<std::uint64_t, Batch> batches_;  // batches that some ranks have not seen yet
  std::map<SetId, Cause> causes_;
  // By key, the earliest submission among the ranks that were told of it as the cause of the
  // world's failure, and whose submissions are therefore gone.
  std::map<KeyNumber, Time> told_as_cause_of_world_;
  std::vector<std::int64_t> last_to_join_;
  std::uint64_t answers_ = 0;
  std::uint64_t batches_seen_ = 0;
  std::uint64_t failures_ = 0;
};

}  // namespace kolo::internal::simulation
