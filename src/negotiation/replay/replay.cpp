// SPDX-License-Identifier: Apache-2.0
#include "negotiation/replay/replay.hpp"

#include <algorithm>
#include <utility>

#include "negotiation/wire/codec.hpp"

namespace kolo::internal::negotiation {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// A lower bound, so that a scheduling delay on a busy machine does not end a plan.
constexpr nanoseconds min_patience = milliseconds(10);
/// An upper bound, in case the first passes take very long.
constexpr nanoseconds max_patience = std::chrono::seconds(10);

nanoseconds patience_for(nanoseconds usual) {
  return std::clamp(4 * usual, min_patience, max_patience);
}

}  // namespace

void Replay::begin(const PlanEntry& entry, std::uint64_t sequence, TimePoint now) {
  if (options_.board == nullptr) throw ProtocolError("a plan, but no board to follow it on");
  if (live_ || entry.epoch <= epoch_ || entry.epoch > last_epoch)
    throw ProtocolError("plan " + std::to_string(entry.epoch) + " came out of turn");
  *this = Replay(options_);
  epoch_ = entry.epoch;
  live_ = true;
  first_sequence_ = sequence;
  progress_at_ = met_at_ = now;
  for (const std::vector<PlanItem>& batch : entry.batches) {
    if (batch.empty()) throw ProtocolError("a plan with an empty batch");
    Descriptor kind = batch.front().descriptor;
    kind.tensors.clear();  // each operation of the batch has its own
    batches_.push_back({items_.size(), batch.size(), batch.size(), std::move(kind),
                        std::min(entry.usual, max_patience)});
    for (const PlanItem& item : batch) {
      const std::size_t place = items_.size();
      if (!item.key.named()) {
        numbered_.push_back(place);
      } else if (!named_.emplace(item.key.name, place).second) {
        throw ProtocolError("a plan with " + to_string(item.key) + " twice");
      }
      items_.push_back({.batch = static_cast<std::uint32_t>(batches_.size() - 1),
                        .follower = static_cast<std::uint32_t>(place + 1),
                        .step = item.descriptor.step,
                        .step_stride = item.step_stride,
                        .number_stride = item.number_stride,
                        .key = item.key,
                        .descriptor = item.descriptor});
    }
  }
  if (items_.empty()) throw ProtocolError("a plan without batches");
  items_.back().follower = 0;
  last_item_ = items_.size() - 1;
  std::ranges::sort(numbered_, {}, [&](std::size_t place) { return items_[place].key.number; });
  if (!numbered_.empty()) first_number_ = items_[numbered_.front()].key.number;
}

/// The item with this key; null if the plan has no such key, or not in this pass. First tries the
/// item that followed the previous submission in the last pass, since the order rarely changes.
Replay::Item* Replay::find(const Key& key) {
  std::uint32_t& expected = items_[last_item_].follower;
  if (items_[expected].key != key) {
    if (key.set != world_set) return nullptr;
    if (key.named()) {
      const auto found = named_.find(key.name);
      if (found == named_.end()) return nullptr;
      expected = static_cast<std::uint32_t>(found->second);
    } else {
      if (numbered_.empty() || key.number < first_number_) return nullptr;
      const std::size_t place = numbered_[(key.number - first_number_) % numbered_.size()];
      if (items_[place].key != key) return nullptr;
      expected = static_cast<std::uint32_t>(place);
    }
  }
  last_item_ = expected;
  return &items_[expected];
}

/// The item with this key and descriptor; null if there is none. If the item was compared with the
/// same version before, only the step is compared again.
Replay::Item* Replay::find(const Key& key, const Descriptor& descriptor, std::uint64_t version) {
  const std::size_t expected = items_[last_item_].follower;
  Item& likely = items_[expected];
  if (version != 0 && likely.version == version && likely.step == descriptor.step) {
    last_item_ = expected;
    return &likely;
  }
  Item* const item = find(key);
  if (item == nullptr) return nullptr;
  item->descriptor.step = item->step;
  if (item->descriptor != descriptor) return nullptr;
  item->version = version;
  return item;
}

void Replay::submit(Ticket ticket, const Key& key, const Descriptor& descriptor, TimePoint now,
                    std::uint64_t version) {
  if (stop_wanted_ || stopping_) return hold(ticket, key, descriptor);
  Item* item = find(key, descriptor, version);
  if (item == nullptr || item->pending) return hold(ticket, key, descriptor);
  if (!unpublished()) progress_at_ = now;
  item->pending = true;
  item->ticket = ticket;
  item->order = next_order_++;
  ++pending_;
  --batches_[item->batch].missing;
}

void Replay::hold(Ticket ticket, const Key& key, const Descriptor& descriptor) {
  held_.push_back({next_order_++, ticket, key, descriptor});
  stop();
}

void Replay::publish() {
  options_.board->publish(to_word({epoch_, published_, stopping_}),
                          stopping_ ? PlanBoard::Urgency::stop : PlanBoard::Urgency::progress);
}

/// Moves this rank's position past the batches for which it is ready. True if the position has
/// changed and must be published.
bool Replay::advance(TimePoint now) {
  const std::uint64_t before = published_;
  // Stop one pass ahead of `ran_`: the next pass uses the same items, and they have not run yet.
  while (published_ - ran_ < batches_.size() && published_ < options_.last_position &&
         batch_at(published_).missing == 0) {
    Batch& batch = batch_at(published_);
    // The usual time grows at once but decays slowly, so that an occasional slow pass does not end
    // the plan.
    batch.usual = std::max(now - progress_at_, batch.usual - batch.usual / 8);
    if (published_ == ran_) met_at_ = now;
    published_items_ += batch.items;
    ++published_;
    progress_at_ = now;
  }
  return published_ != before;
}

void Replay::poll(TimePoint now, int room, std::vector<Execute>& executes) {
  if (!live_ || over_) return;
  if (!stopping_ && advance(now)) publish();
  if (now >= deadline() || published_ == options_.last_position) stop();
  // Order: this rank publishes before it reads. If it misses the word of a rank that becomes ready
  // at the same time, that rank publishes later and wakes this rank.
  std::uint64_t min_position = published_;
  bool all_stopped = true;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (rank == options_.rank) continue;
    const PlanProgress other = to_plan_progress(options_.board->read(rank));
    if (other.epoch > epoch_) throw ProtocolError("a rank is ahead with plans");
    if (other.epoch < epoch_) {  // the rank has not read the plan entry yet
      min_position = 0;
      all_stopped = false;
      continue;
    }
    min_position = std::min(min_position, other.position);
    all_stopped = all_stopped && other.stopped;
    if (other.stopped) stop();
  }
  // Invariant: `published_` never changes once this rank has stopped. So once all ranks have
  // stopped, every rank reads the same minimum, and the plan ends at the same batch everywhere.
  if (stop_wanted_ && !stopping_) {
    stopping_ = true;
    publish();
  }
  if (ran_ < min_position) met_at_ = now;
  // Other ranks may already run any batch before `min_position`, so a rank that stops must run all
  // of them too, without regard to `room`.
  for (; ran_ < min_position && (stopping_ || room > 0); --room) run_one(executes);
  over_ = stopping_ && all_stopped;
}

std::optional<Execute> Replay::take_upcoming() {
  // Once this rank has stopped, the plan is likely to end before the batch.
  if (!live_ || stopping_ || published_ == ran_ || announced_ == ran_ + 1) return std::nullopt;
  announced_ = ran_ + 1;
  return next_batch();
}

Execute Replay::next_batch() {
  const Batch& batch = batch_at(ran_);
  Execute execute{.sequence = first_sequence_ + ran_,
                  .set = world_set,
                  .members = RankSet::range(0, options_.ranks - 1),
                  .absent = {},
                  .kind = batch.kind,
                  .tickets = {},
                  .mark = next_mark()};
  execute.tickets.reserve(batch.items);
  for (std::size_t place = batch.begin; place < batch.begin + batch.items; ++place)
    execute.tickets.push_back(items_[place].ticket);
  return execute;
}

void Replay::run_one(std::vector<Execute>& executes) {
  executes.push_back(next_batch());
  Batch& batch = batch_at(ran_);
  for (std::size_t place = batch.begin; place < batch.begin + batch.items; ++place) {
    Item& item = items_[place];
    item.pending = false;
    if (item.number_stride != 0) item.key.number += item.number_stride;
    item.step += item.step_stride;
  }
  batch.missing = batch.items;
  pending_ -= batch.items;
  published_items_ -= batch.items;
  ++ran_;
}

std::vector<Withdrawn> Replay::end() {
  std::vector<Withdrawn> withdrawn = std::exchange(held_, {});
  for (Item& item : items_) {
    if (!item.pending) continue;
    item.descriptor.step = item.step;
    withdrawn.push_back({item.order, item.ticket, std::move(item.key), std::move(item.descriptor)});
  }
  std::ranges::sort(withdrawn, {}, &Withdrawn::order);
  pending_ = published_items_ = 0;
  live_ = stopping_ = stop_wanted_ = over_ = false;
  return withdrawn;
}

RankSet Replay::awaited() const {
  RankSet ranks;
  if (!live_ || !stopping_) return ranks;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (rank == options_.rank) continue;
    const PlanProgress other = to_plan_progress(options_.board->read(rank));
    if (other.epoch < epoch_ || (other.epoch == epoch_ && !other.stopped))
      ranks.insert(RankSet::of(rank));
  }
  return ranks;
}

TimePoint Replay::deadline() const {
  TimePoint soonest = TimePoint::max();
  if (!live_ || stopping_) return soonest;
  if (stop_wanted_) return TimePoint{};
  if (unpublished())
    soonest = progress_at_ + patience_for(batches_[published_ % batches_.size()].usual);
  if (published_ > ran_) soonest = std::min(soonest, met_at_ + options_.unmet_patience);
  return soonest;
}

}  // namespace kolo::internal::negotiation
