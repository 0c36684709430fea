#include "negotiation/negotiator.hpp"

#include <algorithm>
#include <utility>

#include "negotiation/codec.hpp"
#include "negotiation/explain.hpp"

namespace kolo::negotiation {
namespace {

/// While this many batches are under way at the root, agreed operations gather for the next.
constexpr int batches_under_way = 2;

/// How long the root gathers answers about a key that is late before it speaks.
constexpr std::chrono::milliseconds time_to_answer{500};

}  // namespace

Negotiator::Negotiator(const NegotiatorOptions& options)
    : place_(options.place),
      options_(options),
      tally_(options.place.below()),
      sequencer_(options.fusion_threshold, options.cache_capacity) {}

// ---- events ----

void Negotiator::on_submit(Ticket ticket, const Key& key, const Descriptor& descriptor) {
  if (broken_) {
    actions_.fails.push_back({ticket, broken_failure(key, descriptor.type)});
    return;
  }
  own_.emplace(key, Own{ticket, descriptor.type});
  count(tally_.add(key, descriptor, RankSet::of(place_.rank), now_));
}

void Negotiator::on_message(int peer, std::span<const std::byte> bytes) {
  const Envelope envelope = decode(bytes);
  if (envelope.session != options_.session) return;
  if (const auto* downward = std::get_if<Downward>(&envelope.content)) {
    if (peer != place_.parent)
      throw ProtocolError("rank " + std::to_string(peer) + " is not above this one");
    for (const Child& child : place_.children)
      actions_.sends.push_back({child.rank, {bytes.begin(), bytes.end()}});
    for (const Entry& entry : downward->entries) apply(entry);
    return;
  }
  const auto child = std::ranges::find(place_.children, peer, &Child::rank);
  if (child == place_.children.end())
    throw ProtocolError("rank " + std::to_string(peer) + " is not below this one");
  on_upward(*child, std::get<Upward>(envelope.content));
}

void Negotiator::on_upward(const Child& child, const Upward& message) {
  if (!broken_) {  // else: sent before its sender learned that nothing can complete any more
    message.slots.for_each([&](Slot slot) {
      if (!catalogue_.has(slot))
        throw ProtocolError("slot " + std::to_string(slot) + " is unknown");
      const Catalogue::Item& item = catalogue_[slot];
      count(tally_.add(item.key, item.descriptor, child.ranks, now_));
    });
    for (const Readiness& readiness : message.ready) count(tally_.add(readiness, now_));
    for (const Lag& lag : message.lags) {
      tally_.add(lag, now_);
      if (!is_root()) upward_.lags.push_back(lag);
    }
  }
  for (const Departure& departure : message.departures) {
    if (is_root()) {
      append_departure(departure);
    } else {
      upward_.departures.push_back(departure);
    }
  }
}

void Negotiator::on_time(TimePoint now) {
  now_ = now;
  const std::chrono::nanoseconds warning = options_.stall_warning;
  const std::chrono::nanoseconds shutdown = options_.stall_shutdown;
  if (!is_root()) {
    // The root is to hear of it in time for whichever comes first.
    const auto age = warning.count() == 0    ? shutdown
                     : shutdown.count() == 0 ? warning
                                             : std::min(warning, shutdown);
    if (age.count() == 0) return;
    for (Lag& lag : tally_.late(age, now)) upward_.lags.push_back(std::move(lag));
    return;
  }
  conclude_inquiries();
  if (warning.count() != 0)
    for (const Lag& lag : tally_.late(warning, now)) inquire(lag.key, false);
  const bool giving_up = std::ranges::any_of(inquiries_, &Inquiry::fatal);
  if (shutdown.count() != 0 && !giving_up)
    if (const std::optional<Lag> lag = tally_.overdue(shutdown, now)) inquire(lag->key, true);
}

void Negotiator::on_done() { --unfinished_; }

void Negotiator::on_leave(bool clean, const std::string& reason) {
  const Departure departure{place_.rank, clean, reason};
  if (is_root()) {
    append_departure(departure);
  } else {
    upward_.departures.push_back(departure);
  }
}

// ---- readiness on its way up ----

void Negotiator::count(std::optional<Readiness> complete) {
  if (!complete) return;
  if (is_root()) {
    sequencer_.complete(std::move(*complete));
    return;
  }
  if (complete->variants.size() == 1 && complete->others.empty()) {
    if (const auto slot = catalogue_.find(complete->key, complete->variants.front().descriptor)) {
      upward_.slots.insert(*slot);
      return;
    }
  }
  upward_.ready.push_back(std::move(*complete));
}

// ---- what is late ----

void Negotiator::inquire(const Key& key, bool fatal) {
  inquiries_.push_back({key, fatal, now_});
  sequencer_.append_inquiry(key);
}

void Negotiator::conclude_inquiries() {
  std::vector<Inquiry> open = std::exchange(inquiries_, {});
  for (Inquiry& inquiry : open) {
    if (now_ - inquiry.asked < time_to_answer) {
      inquiries_.push_back(std::move(inquiry));
      continue;
    }
    const std::optional<Lag> lag = tally_.lag(inquiry.key, now_);
    if (!lag) continue;  // it was answered meanwhile
    if (inquiry.fatal) {
      append_stall(*lag);
    } else {
      actions_.reports.push_back(report_lag(*lag, place_.ranks));
    }
  }
}

// ---- the log, as the root writes it ----

void Negotiator::append_stall(const Lag& stalled) {
  while (sequencer_.append_batch(catalogue_)) apply_log();
  sequencer_.append(stalled);
  apply_log();
}

void Negotiator::append_departure(const Departure& departure) {
  // What was agreed before is still executed, by the one that leaves too.
  while (sequencer_.append_batch(catalogue_)) apply_log();
  sequencer_.append(departure);
  if (++departures_ == place_.ranks) sequencer_.append_end();
  apply_log();
}

void Negotiator::sequence() {
  apply_log();
  while (unfinished_ < batches_under_way && sequencer_.append_batch(catalogue_)) apply_log();
}

void Negotiator::apply_log() {
  while (sequencer_.has_entry()) {
    downward_.entries.push_back(sequencer_.take_entry());
    apply(downward_.entries.back());
  }
}

Actions Negotiator::take() {
  if (is_root()) {
    sequence();
    if (!downward_.entries.empty()) {
      const std::vector<std::byte> bytes = encode(options_.session, downward_);
      for (const Child& child : place_.children) actions_.sends.push_back({child.rank, bytes});
      downward_.entries.clear();
    }
  } else if (!upward_.empty()) {
    actions_.sends.push_back({place_.parent, encode(options_.session, upward_)});
    upward_ = {};
  }
  return std::exchange(actions_, {});
}

// ---- the log, as every rank reads it ----

void Negotiator::apply(const Entry& entry) {
  if (entry.sequence != next_sequence_++)
    throw ProtocolError("log entry " + std::to_string(entry.sequence) + " came out of turn");
  if (const auto* batch = std::get_if<BatchEntry>(&entry.body)) {
    apply(*batch, entry.sequence);
  } else if (const auto* mismatch = std::get_if<MismatchEntry>(&entry.body)) {
    apply(*mismatch);
  } else if (const auto* departure = std::get_if<DepartureEntry>(&entry.body)) {
    apply(*departure);
  } else if (const auto* stall = std::get_if<StallEntry>(&entry.body)) {
    apply(*stall);
  } else if (const auto* inquiry = std::get_if<InquiryEntry>(&entry.body)) {
    apply(*inquiry);
  } else {
    ended_ = true;
  }
}

Ticket Negotiator::answered(const Key& key) {
  const auto own = own_.find(key);
  if (own == own_.end())
    throw ProtocolError(to_string(key) + " was answered, but this rank did not submit it");
  const Ticket ticket = own->second.ticket;
  own_.erase(own);
  return ticket;
}

void Negotiator::apply(const BatchEntry& batch, std::uint64_t sequence) {
  std::optional<Execute> execute;
  const auto add = [&](const Key& key, const Descriptor& descriptor) {
    if (!execute) execute = Execute{sequence, descriptor, {}};
    execute->tickets.push_back(answered(key));
  };
  batch.slots.for_each([&](Slot slot) {
    if (!catalogue_.has(slot)) throw ProtocolError("slot " + std::to_string(slot) + " is unknown");
    add(catalogue_[slot].key, catalogue_[slot].descriptor);
  });
  for (const Spelled& spelled : batch.spelled) {
    if (spelled.slot && !catalogue_.enter(*spelled.slot, spelled.key, spelled.descriptor))
      throw ProtocolError("slot " + std::to_string(*spelled.slot) + " cannot be given to " +
                          to_string(spelled.key));
    add(spelled.key, spelled.descriptor);
  }
  if (!execute) throw ProtocolError("an empty batch");
  ++unfinished_;
  actions_.executes.push_back(std::move(*execute));
}

void Negotiator::apply(const MismatchEntry& entry) {
  actions_.fails.push_back({answered(entry.conflict.key), explain_mismatch(entry.conflict)});
}

void Negotiator::apply(const DepartureEntry& entry) {
  if (entry.departure.rank == place_.rank) left_ = true;
  break_off(entry.departure);
}

void Negotiator::apply(const StallEntry& entry) { break_off(entry.lag); }

void Negotiator::apply(const InquiryEntry& entry) {
  if (is_root()) return;
  if (std::optional<Lag> lag = tally_.lag(entry.key, now_)) upward_.lags.push_back(std::move(*lag));
}

void Negotiator::break_off(std::variant<Departure, Lag> cause) {
  if (broken_) return;  // the first cause is the one to tell
  broken_ = std::move(cause);
  for (const auto& [key, own] : own_)
    actions_.fails.push_back({own.ticket, broken_failure(key, own.type)});
  own_.clear();
  tally_.clear();
  upward_.slots = {};
  upward_.ready.clear();
  upward_.lags.clear();
}

Failure Negotiator::broken_failure(const Key& key, OperationType type) const {
  if (const auto* stalled = std::get_if<Lag>(&*broken_))
    return explain_stall(*stalled, place_.ranks, type, key);
  const Departure& departure = std::get<Departure>(*broken_);
  return departure.rank == place_.rank ? explain_own_departure(departure, type, key)
                                       : explain_departure(departure, type, key);
}

}  // namespace kolo::negotiation
