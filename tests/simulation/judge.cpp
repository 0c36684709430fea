// SPDX-License-Identifier: Apache-2.0
// Checks of batches, answers and the final state. Checks of failures are in judge_failures.cpp.
#include "judge.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kolo::internal::simulation {
namespace {

/// Up to so many ranks all orders are kept and compared in the end.
constexpr int few_ranks = 64;

std::string spell(const RankSet& ranks) { return '{' + to_string(ranks) + '}'; }

}  // namespace

Judge::Judge(const Program& program, const std::vector<Operation>& operations, Ledger& ledger)
    : program_(program),
      operations_(operations),
      ledger_(ledger),
      small_(program.ranks() <= few_ranks),
      ranks_(program.settings.node_of.size()) {
  sets_.emplace(world_set, RankSet::range(0, program.ranks() - 1));
}

std::string Judge::name(int rank, Ticket ticket) const {
  const Ledger::Submission* submission = ledger_.find(rank, ticket);
  if (submission == nullptr) return fmt::format("ticket {} of rank {}", ticket, rank);
  return fmt::format("{} of rank {}", kolo::internal::to_string(ledger_.key(submission->key)),
                     rank);
}

const Ledger::Submission& Judge::pending(int rank, Ticket ticket, const char* answer) const {
  const Ledger::Submission* submission = ledger_.find(rank, ticket);
  if (submission == nullptr || submission->state != Ledger::State::pending)
    throw Violation("answered once",
                    fmt::format("{} {}, but it was not pending", name(rank, ticket), answer));
  return *submission;
}

// ---- batches ----

void Judge::on_execute(int rank, const negotiation::Execute& execute) {
  RankState& state = at(rank);
  if (state.last_batch && *state.last_batch >= execute.sequence)
    throw Violation("order", fmt::format("rank {} was given batch {} after batch {}", rank,
                                         execute.sequence, *state.last_batch));
  state.last_batch = execute.sequence;
  if (small_) state.order.push_back(execute.sequence);
  const auto [found, is_first] = batches_.try_emplace(execute.sequence);
  Batch& batch = found->second;
  if (is_first) {
    check_members(execute);
    check_first(batch, rank, execute);
    ++batches_seen_;
  }
  if (!batch.ranks.contains(rank) || batch.ranks != execute.members.without(execute.absent))
    throw Violation("content", fmt::format("batch {} is for ranks {}, on rank {} for {} without {}",
                                           execute.sequence, spell(batch.ranks), rank,
                                           spell(execute.members), spell(execute.absent)));
  if (batch.content.size() != execute.tickets.size())
    throw Violation("content", fmt::format("batch {} has {} operations on rank {}, {} elsewhere",
                                           execute.sequence, execute.tickets.size(), rank,
                                           batch.content.size()));
  for (std::size_t i = 0; i < execute.tickets.size(); ++i) {
    const Ticket ticket = execute.tickets[i];
    const Ledger::Submission& own = pending(rank, ticket, "was executed");
    if (own.key != batch.content[i].first || !same(own.operation, batch.content[i].second))
      throw Violation("content", fmt::format("batch {}: {} stands where others have {}",
                                             execute.sequence, name(rank, ticket),
                                             to_string(ledger_.key(batch.content[i].first))));
    if (state.promised.contains(ticket))
      throw Violation("error", name(rank, ticket) +
                                   " was executed; others were told: " + state.promised.at(ticket));
    ledger_.settle(rank, ticket, Ledger::State::executed);
    ++answers_;
  }
  if (++batch.seen == batch.count) batches_.erase(found);
}

void Judge::check_members(const negotiation::Execute& execute) {
  const auto set = sets_.find(execute.set);
  if (set == sets_.end() || set->second != execute.members)
    throw Violation("content", fmt::format("batch {} of set {} has members {}", execute.sequence,
                                           execute.set, spell(execute.members)));
  for (const int rank : execute.absent.to_vector())
    if (!at(rank).joins)
      throw Violation("submitted", fmt::format("batch {} leaves out rank {}, which never joined",
                                               execute.sequence, rank));
  if (execute.tickets.empty())
    throw Violation("content", fmt::format("batch {} is empty", execute.sequence));
}

/// Nobody has executed it yet: so all its ranks must have all of it pending.
void Judge::check_first(Batch& batch, int rank, const negotiation::Execute& execute) const {
  batch.ranks = execute.members.without(execute.absent);
  batch.count = batch.ranks.count();
  for (const Ticket ticket : execute.tickets) {
    const Ledger::Submission& own = pending(rank, ticket, "was executed");
    batch.content.emplace_back(own.key, own.operation);
  }
  for (const RankSet::Range& range : batch.ranks.ranges()) {
    for (int other = range.first; other <= range.last; ++other) {
      if (ranks_[static_cast<std::size_t>(other)].lost) continue;
      for (const auto& [key, operation] : batch.content) {
        const auto ticket = ledger_.pending(other, key);
        if (!ticket || !same(ledger_.find(other, *ticket)->operation, operation))
          throw Violation("submitted",
                          fmt::format("rank {} executes {} in batch {}, but rank {} {}", rank,
                                      to_string(ledger_.key(key)), execute.sequence, other,
                                      ticket ? "submitted it differently" : "did not submit it"));
      }
    }
  }
}

// ---- numbers as answers ----

void Judge::on_answer(int rank, const negotiation::Answer& answer) {
  const Ledger::Submission& own = pending(rank, answer.ticket, "got a number");
  const Descriptor& asked = descriptor(own.operation);
  RankState& state = at(rank);
  if (asked.type != answer.type)
    throw Violation("content", name(rank, answer.ticket) + " got an answer of another type");
  if (state.promised.contains(answer.ticket))
    throw Violation("error", name(rank, answer.ticket) + " got a number; others were told: " +
                                 state.promised.at(answer.ticket));
  switch (asked.type) {
    case OperationType::join: {
      const std::size_t round = state.last_to_join.size();
      state.last_to_join.push_back(answer.value);
      if (last_to_join_.size() == round) last_to_join_.push_back(answer.value);
      if (last_to_join_[round] != answer.value || answer.value < 0 ||
          answer.value >= program_.ranks())
        throw Violation("content", fmt::format("rank {} was told that rank {} joined last, another "
                                               "that it was rank {}",
                                               rank, answer.value, last_to_join_[round]));
      break;
    }
    case OperationType::add_process_set: {
      const auto set = sets_.try_emplace(answer.value, asked.ranks).first;
      if (answer.value == world_set || set->second != asked.ranks)
        throw Violation("content", fmt::format("set {} is of ranks {} and of {}", answer.value,
                                               spell(set->second), spell(asked.ranks)));
      break;
    }
    default: break;
  }
  ledger_.settle(rank, answer.ticket, Ledger::State::answered);
  ++answers_;
}

void Judge::on_pending(int rank, const std::vector<Key>& keys) {
  if (!small_) return;
  for (const Key& key : keys) {
    const KeyNumber number = ledger_.number_of(key);
    int other = 0;
    while (other < program_.ranks() && !ledger_.pending(other, number)) ++other;
    if (other == program_.ranks())
      throw Violation("pending", fmt::format("rank {} holds {} to be pending, but no rank has it",
                                             rank, to_string(key)));
  }
}

// ---- in the end ----

void Judge::conclude() const {
  for (int rank = 0; rank < program_.ranks(); ++rank) {
    const RankState& state = ranks_[static_cast<std::size_t>(rank)];
    if (state.lost) continue;
    const std::vector<Ledger::Submission>& own = ledger_.of(rank);
    for (std::size_t ticket = 0; ticket < own.size(); ++ticket)
      if (own[ticket].state == Ledger::State::pending)
        throw Violation("deadlock", name(rank, ticket) + " was never answered");
  }
  bool any_lost = false;
  for (const RankState& state : ranks_) any_lost = any_lost || state.lost;
  if (!any_lost && !batches_.empty())
    throw Violation("content",
                    fmt::format("batch {} was seen by {} ranks of {}", batches_.begin()->first,
                                batches_.begin()->second.seen, batches_.begin()->second.count));
  if (small_) check_acyclic();
}

/// The numbers of batches play no part in this.
void Judge::check_acyclic() const {
  std::unordered_map<std::uint64_t, int> before;  // how many ranks have another batch right before
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> after;
  for (const RankState& state : ranks_) {
    for (std::size_t i = 0; i < state.order.size(); ++i) {
      before.try_emplace(state.order[i], 0);
      if (i == 0) continue;
      ++before[state.order[i]];
      after[state.order[i - 1]].push_back(state.order[i]);
    }
  }
  std::vector<std::uint64_t> first;
  for (const auto& [batch, count] : before)
    if (count == 0) first.push_back(batch);
  std::size_t sorted = 0;
  for (; !first.empty(); ++sorted) {
    const std::uint64_t batch = first.back();
    first.pop_back();
    for (const std::uint64_t next : after[batch])
      if (--before[next] == 0) first.push_back(next);
  }
  if (sorted != before.size()) throw Violation("order", "the orders of all ranks have a cycle");
}

}  // namespace kolo::internal::simulation
