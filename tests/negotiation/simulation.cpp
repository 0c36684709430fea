// SPDX-License-Identifier: Apache-2.0
#include "simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "negotiation/protocol/tree.hpp"

namespace kolo::internal::test {

class Simulation::Board : public negotiation::PlanBoard {
 public:
  Board(std::vector<std::uint64_t>& words, std::size_t rank) : words_(words), rank_(rank) {}
  void publish(std::uint64_t word, Urgency) override { words_[rank_] = word; }
  [[nodiscard]] std::uint64_t read(int rank) const override {
    return words_[static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<std::uint64_t>& words_;
  std::size_t rank_;
};

Simulation::Simulation(const Options& options)
    : settings_{.fusion_threshold = options.fusion_threshold,
                .stall_warning = options.stall_warning,
                .stall_shutdown = options.stall_shutdown,
                .cache_capacity = options.cache_capacity},
      clocks_run_(options.clocks_run),
      statuses_(options.statuses),
      words_(options.node_of.size()),
      nodes_(options.node_of.size()),
      network_(static_cast<int>(options.node_of.size()), options.seed),
      random_(options.seed * 2 + 1) {
  const std::vector<negotiation::TreePosition> places =
      negotiation::build_tree(options.node_of, options.arity);
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    if (options.replay) nodes_[rank].board = std::make_unique<Board>(words_, rank);
    nodes_[rank].negotiator = std::make_unique<negotiation::Negotiator>(
        settings_,
        negotiation::NegotiatorOptions{
            .place = places[rank], .session = options.seed, .board = nodes_[rank].board.get()});
  }
}

void Simulation::submit(int rank, const Key& key, const Descriptor& descriptor) {
  at(rank).wishes.push_back({.key = key, .descriptor = descriptor});
}

void Simulation::wait(int rank) { at(rank).wishes.push_back({.waits = true}); }

void Simulation::join(int rank) {
  Descriptor descriptor;
  descriptor.type = OperationType::join;
  submit(rank, {.number = join_number}, descriptor);
}

void Simulation::add_set(int rank, const RankSet& members) {
  Descriptor descriptor;
  descriptor.type = OperationType::add_process_set;
  descriptor.ranks = members;
  submit(rank, {.number = set_change_number}, descriptor);
}

void Simulation::remove_set(int rank, SetId set) {
  Descriptor descriptor;
  descriptor.type = OperationType::remove_process_set;
  descriptor.removed = set;
  submit(rank, {.number = set_change_number}, descriptor);
}

void Simulation::leave(int rank, const std::string& reason) {
  at(rank).wishes.push_back({.leaves = true, .reason = reason});
}

bool Simulation::make_wish(int rank) {
  Node& node = at(rank);
  if (node.wishes.empty() || node.joined) return false;
  const Wish wish = node.wishes.front();
  if (wish.waits) {
    if (node.unanswered > 0) return false;
  } else if (wish.leaves) {
    node.negotiator->on_leave(wish.reason);
  } else {
    int& pending = node.pending[to_string(wish.key)];
    if (pending > 0) return false;
    ++pending;
    ++node.unanswered;
    node.joined = wish.descriptor.type == OperationType::join;
    node.outcomes.push_back({wish.key, wish.descriptor});
    node.negotiator->on_submit(node.outcomes.size() - 1, wish.key, wish.descriptor);
  }
  node.wishes.pop_front();
  return true;
}

void Simulation::settle(Outcome& outcome, Node& node) {
  ++outcome.answers;
  --node.unanswered;
  --node.pending[to_string(outcome.key)];
}

bool Simulation::take(int rank) {
  Node& node = at(rank);
  const negotiation::Actions actions = node.negotiator->take();
  for (const negotiation::Send& send : actions.sends) {
    bytes_sent_ += static_cast<std::int64_t>(send.message.size());
    network_.endpoint(rank).send(send.peer, send.message);
  }
  for (const negotiation::Execute& execute : actions.executes) {
    SeenBatch seen{execute.sequence, execute.members.without(execute.absent), {}, {}};
    for (const negotiation::Ticket ticket : execute.tickets) {
      Outcome& outcome = node.outcomes.at(ticket);
      seen.keys.push_back(outcome.key);
      seen.descriptors.push_back(outcome.descriptor);
      outcome.batch = execute.sequence;
      settle(outcome, node);
    }
    node.log.push_back(std::move(seen));
    node.executing.push_back(execute.set);
  }
  if (actions.upcoming) {
    for (const negotiation::Ticket ticket : actions.upcoming->tickets)
      EXPECT_EQ(node.outcomes.at(ticket).answers, 0) << "it is upcoming, and was executed before";
    EXPECT_EQ(actions.upcoming->mark, node.negotiator->next_mark());
  }
  for (const negotiation::Fail& fail : actions.fails) {
    Outcome& outcome = node.outcomes.at(fail.ticket);
    outcome.failure = fail.failure;
    settle(outcome, node);
    if (outcome.key.number == join_number) node.joined = false;
  }
  for (const negotiation::Answer& answer : actions.answers) {
    Outcome& outcome = node.outcomes.at(answer.ticket);
    outcome.answer = answer.value;
    settle(outcome, node);
    if (answer.type == OperationType::join) node.joined = false;
  }
  node.reports.insert(node.reports.end(), actions.reports.begin(), actions.reports.end());
  if (!actions.questions.empty() && statuses_)
    node.negotiator->on_answer(actions.questions, statuses_(rank));
  return !actions.empty();
}

bool Simulation::receive(int rank) {
  return network_.endpoint(rank).poll([&](int peer, std::span<const std::byte> message) {
    at(rank).negotiator->on_message(peer, message);
  });
}

bool Simulation::finish_one(int rank) {
  Node& node = at(rank);
  if (node.executing.empty()) return false;
  node.negotiator->on_done(node.executing.front());
  node.executing.pop_front();
  return true;
}

bool Simulation::event() {
  const int rank = below(ranks());
  if (clocks_run_ && below(50) == 0) {
    now_ += std::chrono::milliseconds(below(4));
    at(rank).negotiator->on_time(now_);
  }
  switch (below(5)) {
    case 0: return make_wish(rank);
    case 1: return take(rank);
    case 2: return receive(rank);
    case 3: return finish_one(rank);
    default: return network_.deliver_one();
  }
}

void Simulation::run() {
  // Random events; when many in a row change nothing, everybody gets a turn, and if that changes
  // nothing either, nothing is left to happen.
  for (int vain = 0;;) {
    vain = event() ? 0 : vain + 1;
    if (vain < 20 + ranks() / 4) continue;
    bool moved = false;
    while (network_.deliver_one()) moved = true;
    for (int rank = 0; rank < ranks(); ++rank) {
      moved |= receive(rank);
      moved |= make_wish(rank);
      while (finish_one(rank)) moved = true;
      moved |= take(rank);
    }
    if (!moved && !pass_to_deadline()) return;
    vain = 0;
  }
}

/// False if nobody waits for a time.
bool Simulation::pass_to_deadline() {
  auto soonest = negotiation::TimePoint::max();
  for (const Node& node : nodes_) soonest = std::min(soonest, node.negotiator->deadline());
  if (soonest == negotiation::TimePoint::max()) return false;
  now_ = std::max(now_, soonest);
  for (Node& node : nodes_) node.negotiator->on_time(now_);
  return true;
}

bool Simulation::finished() const {
  return std::ranges::all_of(nodes_, [](const Node& node) { return node.wishes.empty(); });
}

void Simulation::pass_time(std::chrono::nanoseconds time) {
  now_ += time;
  for (Node& node : nodes_) node.negotiator->on_time(now_);
  run();
}

std::vector<int> even_nodes(int ranks, int per_node) {
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank / per_node);
  return node_of;
}

Descriptor floats(std::int64_t elements) {
  Descriptor descriptor;
  descriptor.type = OperationType::allreduce;
  descriptor.tensors = {{DType::f32, Shape(elements)}};
  return descriptor;
}

void expect_consistent(const Simulation& simulation) {
  std::map<std::uint64_t, std::pair<SeenBatch, int>> batches;  // and how many ranks saw them
  for (int rank = 0; rank < simulation.ranks(); ++rank) {
    for (const Outcome& outcome : simulation.outcomes(rank))
      EXPECT_EQ(outcome.answers, 1) << "rank " << rank << ", " << to_string(outcome.key);
    const std::vector<SeenBatch>& log = simulation.log(rank);
    EXPECT_TRUE(
        std::is_sorted(log.begin(), log.end(),
                       [](const auto& a, const auto& b) { return a.sequence < b.sequence; }))
        << "rank " << rank;
    for (const SeenBatch& batch : log) {
      EXPECT_TRUE(batch.ranks.contains(rank)) << "rank " << rank;
      const auto [known, first] = batches.try_emplace(batch.sequence, batch, 0);
      EXPECT_EQ(known->second.first, batch) << "rank " << rank;
      ++known->second.second;
    }
  }
  for (const auto& [sequence, batch] : batches)
    EXPECT_EQ(batch.second, batch.first.ranks.count()) << "batch " << sequence;
}

}  // namespace kolo::internal::test
