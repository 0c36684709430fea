// SPDX-License-Identifier: Apache-2.0
// The programs of the simulated ranks. Their drivers are in world_driver.cpp.
#include "world.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "board.hpp"
#include "negotiation/protocol/tree.hpp"

namespace kolo::internal::simulation {
namespace {

using Kind = Event::Kind;

/// How often a driver looks after what depends on the time.
constexpr Time look_interval = std::chrono::milliseconds(100);
/// Nothing that a rank may wait for takes longer, once nobody computes.
constexpr Time max_wait = std::chrono::seconds(60);

}  // namespace

World::World(const Program& program)
    : program_(program),
      settings_(program.settings),
      negotiator_settings_{.fusion_threshold = settings_.fusion_threshold,
                           .stall_warning = settings_.stall_warning,
                           .stall_shutdown = settings_.stall_shutdown,
                           .cache_capacity = settings_.cache_capacity},
      operations_(program.operations),
      key_of_operation_(program.operations.size(), -1),
      random_(settings_.seed),
      ledger_(program.ranks()),
      judge_(program, operations_, ledger_),
      words_(settings_.node_of.size()),
      looks_often_(settings_.stall_warning.count() != 0 || settings_.stall_shutdown.count() != 0 ||
                   !program.pauses.empty()),
      now_(std::chrono::seconds(1)),
      progress_(now_) {
  std::vector<negotiation::TreePosition> places =
      negotiation::build_tree(settings_.node_of, settings_.arity);
  for (std::size_t i = 0; i < places.size(); ++i) {
    Rank& rank = *ranks_.emplace_back(std::make_unique<Rank>());
    if (settings_.board)
      rank.board = std::make_unique<Board>(
          words_, i, [this, i](bool everybody) { wake(*ranks_[i], everybody); });
    rank.place = std::move(places[i]);
    rank.negotiator.emplace(negotiator_settings_,
                            negotiation::NegotiatorOptions{.place = rank.place,
                                                           .session = settings_.seed,
                                                           .now = clock(),
                                                           .board = rank.board.get()});
    if (looks_often_) rank.clock.emplace(clock());
    rank.sets.assign(program.sets.size() + 1, 0);
    rank.unnamed.assign(program.sets.size() + 1, 0);
  }
  phases_.push_back({.begun = now_, .traffic = std::vector<Traffic>(ranks_.size())});
}

World::~World() = default;

bool World::all_over() const {
  return std::ranges::all_of(ranks_, [&](const auto& rank) { return over(*rank); });
}

void World::run() {
  for (int rank = 0; rank < program_.ranks(); ++rank) queue_.push(now_, Kind::act, rank);
  for (std::size_t i = 0; i < program_.pauses.size(); ++i)
    queue_.push(now_ + program_.pauses[i].at, Kind::pause, 0, i);
  if (looks_often_)
    for (int rank = 0; rank < program_.ranks(); ++rank)
      queue_.push(now_ + random_up_to(look_interval), Kind::tick, rank);
  while (!queue_.empty()) {
    const Event event = queue_.pop();
    now_ = event.at;
    if (now_ - progress_ > max_wait) break;
    handle(event);
  }
  for (int rank = 0; rank < program_.ranks(); ++rank) {
    const Rank& one = at(rank);
    if (one.dead || one.failed) continue;
    // Acts of a rank after its session has ended are left out.
    const bool ended = one.has_left && one.negotiator->ended();
    if (one.unanswered > 0 || (!ended && one.next < program_.script_of(rank).size()))
      throw Violation("deadlock", fmt::format("rank {} waits at its act {} with {} unanswered",
                                              rank, one.next, one.unanswered));
    if (one.has_left && !any_dead_ && !one.negotiator->ended())
      throw Violation("deadlock", fmt::format("all have left, but rank {} has not ended", rank));
    check_copies(rank);
  }
  judge_.conclude();
}

/// True if the event concerns a process that is stopped, and comes again later.
bool World::put_off(const Event& event) {
  Rank& rank = at(event.rank);
  switch (event.kind) {
    case Kind::arrival:
    case Kind::timer:
    case Kind::pause: return false;  // the host's part; or they only ask for a turn
    case Kind::act:
      if (rank.computes_longer.count() == 0) return false;
      queue_.push(now_ + std::exchange(rank.computes_longer, Time(0)), Kind::act, event.rank);
      return true;
    default:
      if (now_ >= rank.paused_until) return false;
      queue_.push(rank.paused_until, event.kind, event.rank, event.payload);
      return true;
  }
}

void World::handle(const Event& event) {
  if (put_off(event)) return;
  Rank& rank = at(event.rank);
  switch (event.kind) {
    case Kind::act: progress_ = now_; return act(event.rank);
    case Kind::arrival:
      rank.inbox.push_back(std::move(messages_[event.payload]));
      free_messages_.push_back(event.payload);
      return ask_for_turn(event.rank);
    case Kind::timer:
      if (event.at != rank.timer) return;
      rank.timer = Time::max();
      return ask_for_turn(event.rank);
    case Kind::tick:
      if (all_over()) return;
      queue_.push(now_ + look_interval, Kind::tick, event.rank);
      rank.time_due = true;
      return ask_for_turn(event.rank);
    case Kind::turn: return turn(event.rank);
    case Kind::done: return finish(event.rank, event.payload);
    case Kind::loss: return lose(event.rank);
    case Kind::pause: return pause(program_.pauses[event.payload]);
  }
}

Time World::random_up_to(Time most) {
  if (most.count() <= 0) return Time(0);
  return Time(static_cast<std::int64_t>(random_.below(static_cast<std::size_t>(most.count()) + 1)));
}

// ---- what a rank's program does ----

void World::act(int number) {
  Rank& rank = at(number);
  rank.blocked = false;
  const Script& script = program_.script_of(number);
  while (!over(rank) && rank.next < script.size()) {
    const Act& act = script[rank.next];
    switch (act.kind) {
      case Act::Kind::compute: {
        ++rank.next;
        const double most = static_cast<double>(act.time.count()) * settings_.compute_jitter;
        const Time longer = random_up_to(Time(static_cast<std::int64_t>(most)));
        return queue_.push(now_ + act.time + longer, Kind::act, number);
      }
      case Act::Kind::submit:
      case Act::Kind::insist:
        if (!submit(number, act)) {
          rank.blocked = true;
          return;
        }
        break;
      case Act::Kind::wait:
        if (rank.unanswered > 0) {
          rank.blocked = true;
          return;
        }
        break;
      case Act::Kind::meet: ++rank.next; return meet();
      case Act::Kind::leave:
        rank.wants_to_leave = rank.has_left = true;
        judge_.on_leave(number);
        ask_for_turn(number);
        break;
      case Act::Kind::die: return die(number);
    }
    ++rank.next;
  }
}

/// None if the rank does not know its set, or is no member.
std::optional<Key> World::key_of(Rank& rank, int number) const {
  const Operation& operation = operations_[static_cast<std::size_t>(number)];
  const auto set = static_cast<std::size_t>(operation.set);
  switch (operation.descriptor.type) {
    case OperationType::join: return Key{.number = join_number};
    case OperationType::remove_process_set:
      if (rank.sets[set] == 0) return std::nullopt;
      [[fallthrough]];
    case OperationType::add_process_set: return Key{.number = set_change_number};
    default: break;
  }
  if (set != 0 && (rank.sets[set] == 0 || !members_.at(rank.sets[set]).contains(rank.place.rank)))
    return std::nullopt;
  Key key{.name = operation.name, .set = set == 0 ? world_set : rank.sets[set]};
  if (!key.named()) key.number = rank.unnamed[set];
  return key;
}

/// False if it has to wait first.
bool World::submit(int number, const Act& act) {
  Rank& rank = at(number);
  if (rank.joined) return false;
  Operation& operation = operations_[static_cast<std::size_t>(act.what)];
  KeyNumber& fixed = key_of_operation_[static_cast<std::size_t>(act.what)];
  KeyNumber key_number = fixed;
  if (key_number < 0) {
    const std::optional<Key> key = key_of(rank, act.what);
    if (!key) return true;
    key_number = ledger_.number_of(*key);
    if (key->named() && key->set == world_set) fixed = key_number;
  }
  const auto place = static_cast<std::size_t>(key_number);
  if (rank.key_taken.size() <= place) rank.key_taken.resize(place + 1);
  if (rank.key_taken[place] != 0) return act.kind == Act::Kind::insist;
  rank.key_taken[place] = 1;
  switch (operation.descriptor.type) {
    case OperationType::join:
      rank.joined = true;
      judge_.on_join(number);
      break;
    case OperationType::add_process_set: break;
    case OperationType::remove_process_set:
      operation.descriptor.removed = rank.sets[static_cast<std::size_t>(operation.set)];
      break;
    default:
      if (operation.name.empty()) ++rank.unnamed[static_cast<std::size_t>(operation.set)];
  }
  rank.submitted.push_back(ledger_.submit(number, key_number, act.what, awake()));
  ++rank.unanswered;
  phases_.back().submitted = now_;
  ask_for_turn(number);
  return true;
}

void World::unblock(int number) {
  Rank& rank = at(number);
  if (!rank.blocked) return;
  rank.blocked = false;
  queue_.push(now_ + random_up_to(settings_.wake), Kind::act, number);
}

void World::meet() {
  if (++meeting_ < program_.ranks()) return;
  meeting_ = 0;
  phases_.push_back({.begun = now_, .traffic = std::vector<Traffic>(ranks_.size())});
  for (const auto& rank : ranks_) {
    rank->hops = 0;
    queue_.push(now_, Kind::act, rank->place.rank);
  }
}

// ---- pauses, and the loss of a rank ----

/// The processes of a job do not go on at exactly the same time.
void World::pause(const Pause& pause) {
  constexpr Time stagger = std::chrono::milliseconds(20);
  progress_ = now_ + pause.length;
  if (pause.rank == Pause::all) {
    const Time end = std::max(now_ + pause.length, suspended_until_);
    suspended_ += end - std::max(now_, suspended_until_);
    suspended_until_ = end;
  }
  for (const auto& rank : ranks_) {
    if (pause.rank != Pause::all && rank->place.rank != pause.rank) continue;
    const Time length = pause.length + random_up_to(stagger);
    if (!rank->blocked) rank->computes_longer += length;
    rank->paused_until = std::max(rank->paused_until, now_ + length);
  }
}

/// Its neighbors on the host look for it every 0.1 s and believe it the second time; the others
/// are ended with the job, later.
void World::die(int number) {
  Rank& rank = at(number);
  rank.dead = any_dead_ = true;
  judge_.on_lost(number);
  const auto host = [&](int one) { return settings_.node_of[static_cast<std::size_t>(one)]; };
  for (int other = 0; other < program_.ranks(); ++other) {
    if (other == number) continue;
    const Time least = host(other) == host(number) ? look_interval : 10 * look_interval;
    queue_.push(now_ + least + random_up_to(least), Kind::loss, other);
  }
}

/// Its session fails: everything that is pending is answered by that, and it does nothing more.
void World::lose(int number) {
  Rank& rank = at(number);
  if (over(rank)) return;
  progress_ = now_;
  rank.failed = true;
  judge_.on_lost(number);
  ledger_.lose(number);
  rank.unanswered = 0;
}

}  // namespace kolo::internal::simulation
