// SPDX-License-Identifier: Apache-2.0
// The drivers of the simulated ranks: a rank's turn, and the delivery of its messages to other
// ranks.
#include <fmt/format.h>

#include <algorithm>

#include "board.hpp"
#include "negotiation/wire/codec.hpp"
#include "world.hpp"

namespace kolo::internal::simulation {

using negotiation::Negotiator;

namespace {

using Kind = Event::Kind;

std::int64_t bytes_of(const Descriptor& descriptor) {
  std::int64_t bytes = 0;
  for (const TensorSpec& tensor : descriptor.tensors) bytes += 4 * tensor.shape.elements();
  return bytes;
}

Time time_for(std::int64_t bytes, double bytes_per_ns) {
  return Time(static_cast<std::int64_t>(static_cast<double>(bytes) / bytes_per_ns));
}

}  // namespace

void World::ask_for_turn(int number) {
  Rank& rank = at(number);
  if (rank.turn_due || over(rank)) return;
  rank.turn_due = true;
  queue_.push(std::max(now_, rank.busy_until) + random_up_to(settings_.wake), Kind::turn, number);
}

/// Only who waits for words on the board, or for data, is woken by progress; a stop wakes all.
void World::wake(const Rank& publisher, bool everybody) {
  for (const auto& other : ranks_) {
    if (other.get() == &publisher) continue;
    if (everybody || !other->running.empty() || other->negotiator->awaits_board())
      ask_for_turn(other->place.rank);
  }
}

void World::turn(int number) {
  Rank& rank = at(number);
  rank.turn_due = false;
  if (over(rank)) return;
  Negotiator& negotiator = *rank.negotiator;
  Time clock_of_rank = now_;
  try {
    if (rank.clock) static_cast<void>(rank.clock->advance(clock()));
    const negotiation::TimePoint time = rank.clock ? rank.clock->now() : clock();
    negotiator.set_time(time);
    bool moved = !rank.submitted.empty() || !rank.inbox.empty() || rank.wants_to_leave;
    turn_tickets_.clear();
    turn_tickets_.swap(rank.submitted);  // so that memory is taken once
    for (const Ticket ticket : turn_tickets_) {
      const Ledger::Submission& submission = *ledger_.find(number, ticket);
      negotiator.on_submit(ticket, ledger_.key(submission.key),
                           operations_[static_cast<std::size_t>(submission.operation)].descriptor);
    }
    if (std::exchange(rank.wants_to_leave, false)) negotiator.on_leave({});
    clock_of_rank += settings_.cost_of_message * read_messages(number);
    if (std::exchange(rank.time_due, false)) {
      negotiator.on_time(time);
      judge_.on_pending(number, negotiator.pending());
    }
    negotiation::Actions actions = negotiator.take();
    moved = perform(number, actions, clock_of_rank) > 0 || moved;
    rank.busy_until = clock_of_rank;
    if (negotiator.ended() && !rank.running.empty())
      throw Violation("end", fmt::format("the session has ended, but rank {} has batches", number));
    if (moved) {
      progress_ = now_;
      ask_for_turn(number);  // as long as anything moves
    }
    const negotiation::TimePoint deadline = negotiator.deadline();
    if (deadline != negotiation::TimePoint::max() && !over(rank)) {
      const Time due =
          std::max(now_ + Time(1),
                   (rank.clock ? rank.clock->to_real(deadline) : deadline).time_since_epoch());
      if (due < rank.timer) queue_.push(rank.timer = due, Kind::timer, number);
    }
  } catch (const negotiation::ProtocolError& error) {
    throw Violation("protocol", fmt::format("rank {}: {}", number, error.what()));
  }
}

int World::read_messages(int number) {
  Rank& rank = at(number);
  turn_messages_.clear();
  turn_messages_.swap(rank.inbox);
  Traffic& traffic = phases_.back().traffic[static_cast<std::size_t>(number)];
  for (const Message& message : turn_messages_) {
    ++traffic.messages_received;
    traffic.bytes_received += static_cast<std::int64_t>(message.bytes->size());
    rank.hops = std::max(rank.hops, message.hops);
    phases_.back().hops = std::max(phases_.back().hops, rank.hops);
    if (message.from == rank.place.parent)
      rank.copies_owed += static_cast<std::int64_t>(rank.place.children.size());
    rank.negotiator->on_message(message.from, *message.bytes);
  }
  return static_cast<int>(turn_messages_.size());
}

/// How many actions there were.
int World::perform(int number, negotiation::Actions& actions, Time& clock_of_rank) {
  Bytes last;
  for (negotiation::Send& one : actions.sends) {
    clock_of_rank += settings_.cost_of_message;
    send(number, one, clock_of_rank, last);
  }
  for (const negotiation::Execute& execute : actions.executes) {
    judge_.on_execute(number, execute);
    start(number, execute);
  }
  for (const negotiation::Fail& fail : actions.fails) {
    judge_.on_fail(number, fail, awake());
    settled(number, fail.ticket);
  }
  for (const negotiation::Answer& answer : actions.answers) {
    judge_.on_answer(number, answer);
    const Ledger::Submission& own = *ledger_.find(number, answer.ticket);
    const Operation& operation = operations_[static_cast<std::size_t>(own.operation)];
    if (operation.descriptor.type == OperationType::add_process_set) {
      at(number).sets[static_cast<std::size_t>(operation.set)] = answer.value;
      members_.try_emplace(answer.value, operation.descriptor.ranks);
    }
    settled(number, answer.ticket);
  }
  return static_cast<int>(actions.sends.size() + actions.executes.size() + actions.fails.size() +
                          actions.answers.size());
}

/// Sends a message. Equal messages to several children share one buffer.
void World::send(int number, negotiation::Send& send, Time departure, Bytes& last) {
  Rank& rank = at(number);
  Traffic& traffic = phases_.back().traffic[static_cast<std::size_t>(number)];
  ++traffic.messages_sent;
  if (last == nullptr || *last != send.message)
    last = std::make_shared<const std::vector<std::byte>>(std::move(send.message));
  const auto bytes = static_cast<std::int64_t>(last->size());
  traffic.bytes_sent += bytes;
  const bool up = send.peer == rank.place.parent;
  if (!up) --rank.copies_owed;
  const bool in_host = settings_.node_of[static_cast<std::size_t>(number)] ==
                       settings_.node_of[static_cast<std::size_t>(send.peer)];
  Time takes = in_host ? settings_.latency_in_host : settings_.latency_between_hosts;
  takes += time_for(bytes, settings_.bytes_per_ns);
  takes += random_up_to(
      Time(static_cast<std::int64_t>(static_cast<double>(takes.count()) * settings_.jitter)));
  Time& previous = up ? rank.last_up : at(send.peer).last_down;
  previous = std::max(departure + takes, previous);  // the order of a sender's messages is kept
  std::size_t place = messages_.size();
  if (free_messages_.empty()) {
    messages_.push_back({number, rank.hops + 1, last});
  } else {
    place = free_messages_.back();
    free_messages_.pop_back();
    messages_[place] = {number, rank.hops + 1, last};
  }
  queue_.push(previous, Kind::arrival, send.peer, place);
}

/// A batch moves its data when all its ranks have started it.
void World::start(int number, const negotiation::Execute& execute) {
  at(number).running.push_back({execute.sequence, execute.set, execute.tickets});
  const auto [found, is_first] = starts_.try_emplace(execute.sequence);
  Start& all = found->second;
  if (is_first) {
    all.ranks = execute.members.without(execute.absent);
    all.missing = all.ranks.count();
    ++phases_.back().batches;
  }
  if (--all.missing > 0) return;
  std::int64_t bytes = 0;
  for (const Ticket ticket : execute.tickets)
    bytes += bytes_of(
        operations_[static_cast<std::size_t>(ledger_.find(number, ticket)->operation)].descriptor);
  const Time takes = settings_.data_latency + time_for(bytes, settings_.data_bytes_per_ns);
  const Time most = settings_.jitter > 0 ? takes : Time(0);
  for (const RankSet::Range& range : all.ranks.ranges())
    for (int rank = range.first; rank <= range.last; ++rank)
      queue_.push(now_ + takes + random_up_to(most), Kind::done, rank, execute.sequence);
  starts_.erase(found);
}

/// True if a member has died or failed: batches of the set that are in progress never end.
bool World::lacks_a_rank(SetId set) const {
  return any_dead_ && std::ranges::any_of(ranks_, [&](const auto& rank) {
           return (rank->dead || rank->failed) &&
                  (set == world_set || members_.at(set).contains(rank->place.rank));
         });
}

void World::finish(int number, std::uint64_t sequence) {
  Rank& rank = at(number);
  if (rank.dead || rank.failed) return;
  const auto running = std::ranges::find(rank.running, sequence, &Running::sequence);
  if (running == rank.running.end())
    throw Violation("order", fmt::format("rank {} does not run batch {}", number, sequence));
  if (lacks_a_rank(running->set)) return;
  rank.negotiator->on_done(running->set);
  const std::vector<Ticket> tickets = std::move(running->tickets);
  rank.running.erase(running);
  for (const Ticket ticket : tickets) settled(number, ticket);
  ask_for_turn(number);
}

void World::settled(int number, Ticket ticket) {
  Rank& rank = at(number);
  const Ledger::Submission& own = *ledger_.find(number, ticket);
  rank.key_taken[static_cast<std::size_t>(own.key)] = 0;
  --rank.unanswered;
  phases_.back().ended = now_;
  const Operation& operation = operations_[static_cast<std::size_t>(own.operation)];
  if (operation.descriptor.type == OperationType::join) {
    rank.joined = false;
    std::ranges::fill(rank.unnamed, 0);
  }
  unblock(number);
}

/// Checks that a live rank other than the root has forwarded each message of its parent once to
/// each child.
void World::check_copies(int number) const {
  const Rank& rank = *ranks_[static_cast<std::size_t>(number)];
  if (rank.place.parent >= 0 && rank.copies_owed != 0)
    throw Violation("traffic",
                    fmt::format("rank {} has sent its {} children {} copies too {}", number,
                                rank.place.children.size(), std::abs(rank.copies_owed),
                                rank.copies_owed > 0 ? "few" : "many"));
}

}  // namespace kolo::internal::simulation
