// SPDX-License-Identifier: Apache-2.0
#include "session/engine/status_board.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "negotiation/wire/codec.hpp"
#include "node/other_process.hpp"

namespace kolo::internal::session {
namespace {

using negotiation::RankStatus;
using node::StatusPage;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using TimePoint = StatusBoard::TimePoint;

constexpr std::size_t max_name = 160;
constexpr std::size_t max_text = 400;
constexpr std::size_t max_reason = 1000;

/// The age up to which a status counts as current.
constexpr milliseconds fresh{500};

milliseconds since(std::int64_t then, TimePoint now) {
  const nanoseconds age = now.time_since_epoch() - nanoseconds(then);
  return std::max(std::chrono::duration_cast<milliseconds>(age), milliseconds(0));
}

void shorten(std::string& text, std::size_t max) {
  if (text.size() <= max) return;
  // Do not cut within a UTF-8 character: its continuation bytes begin with the bits 10.
  while (max > 0 && (static_cast<unsigned char>(text[max]) & 0xC0U) == 0x80U) --max;
  text.resize(max);
  text += "...";
}

/// Keeps the first half of the ranges.
void halve(RankSet& ranks) {
  const std::vector<RankSet::Range> all = ranks.ranges();
  ranks = {};
  for (std::size_t i = 0; i < all.size() / 2; ++i)
    ranks.insert(RankSet::range(all[i].first, all[i].last));
}

/// Drops one item from a status that does not fit its page. False if there is nothing left to drop;
/// the texts alone always fit.
bool leave_out(RankStatus& status) {
  if (!status.operations.empty()) {
    status.operations.pop_back();
  } else if (!status.awaited.empty()) {
    halve(status.awaited);
  } else if (status.ended && !status.ended->ranks.empty()) {
    halve(status.ended->ranks);
  } else {
    return false;
  }
  return true;
}

}  // namespace

StatusBoard::StatusBoard(std::vector<Seat> seats, int own, int ranks)
    : seats_(std::move(seats)), ranks_(ranks) {
  if (seats_.empty()) {
    private_page_ = std::make_unique<StatusPage>();
    seats_.push_back({own, ::getpid(), private_page_.get(), nullptr});
  }
  own_ = seat_of(own);
}

std::size_t StatusBoard::seat_of(int rank) const {
  return static_cast<std::size_t>(std::ranges::find(seats_, rank, &Seat::rank) - seats_.begin());
}

void StatusBoard::publish(RankStatus status, TimePoint now, TimePoint submitted_at) {
  auto& words = own_page().words();
  if (ended_) {  // the status that holds the reason stays
    words.progressed.store(now.time_since_epoch().count(), std::memory_order_release);
    return;
  }
  // Relaxed: each word has a meaning by itself. `progressed` is stored last, with release, and a
  // reader loads it first, with acquire: the other words that it reads are at least as new.
  words.submitted.store(submitted_at.time_since_epoch().count(), std::memory_order_relaxed);
  const bool idle = status.pending == 0 && status.batch.empty();
  words.flags.store((idle ? 0 : StatusPage::busy) | (status.blocked ? StatusPage::blocked : 0),
                    std::memory_order_relaxed);
  if (!std::exchange(was_idle_, idle) || !idle) write(status);
  words.progressed.store(now.time_since_epoch().count(), std::memory_order_release);
}

void StatusBoard::publish_end(Failure why, bool alarm, TimePoint now) {
  if (ended_ && (*ended_ != FailureKind::shut_down || why.kind == FailureKind::shut_down)) return;
  ended_ = why.kind;
  RankStatus status;
  status.ended = std::move(why);
  write(status);
  auto& words = own_page().words();
  // Release: a rank that sees the flag finds the reason on the page.
  words.flags.store(StatusPage::ended, std::memory_order_release);
  words.progressed.store(now.time_since_epoch().count(), std::memory_order_release);
  if (!alarm) return;
  for (std::size_t seat = 0; seat < seats_.size(); ++seat) {
    if (seat == own_) continue;
    // Raised before the bell rings, so that a woken rank finds the alarm. Release: the rank that
    // takes the alarm also sees the flag above. An exchange, not a store: a store would end the
    // release sequences of ranks that raised the alarm earlier, and their flags might not be seen.
    seats_[seat].page->words().alarm.exchange(1, std::memory_order_release);
    if (seats_[seat].bell != nullptr) seats_[seat].bell->ring();
  }
}

/// Lists fewer operations and ranks if there is no room for all. The page never keeps an old text:
/// other ranks would read a status that is no longer true, or an end without a reason.
void StatusBoard::write(RankStatus& status) {
  for (negotiation::WaitingOperation& operation : status.operations)
    shorten(operation.key.name, max_name);
  shorten(status.batch, max_text);
  shorten(status.awaits, max_text);
  if (status.ended) {
    shorten(status.ended->message, max_reason);
    shorten(status.ended->tensor, max_name);
  }
  while (!own_page().write(negotiation::encode_status(status)) && leave_out(status)) {
  }
}

bool StatusBoard::take_alarm() {
  auto& alarm = own_page().words().alarm;
  // Every pass checks the alarm, so it loads the word first, which leaves the cache line shared,
  // and exchanges only if the alarm is set. An alarm raised in between is taken by the exchange, so
  // none is lost. Acquire: the flags of the ranks that raised it are visible afterwards.
  if (alarm.load(std::memory_order_relaxed) == 0) return false;
  return alarm.exchange(0, std::memory_order_acquire) != 0;
}

RankStatus StatusBoard::read(const Seat& seat, TimePoint now) const {
  const auto& words = seat.page->words();
  RankStatus status;
  // Acquire, and read first: everything read below is at least as new as `progressed`.
  const std::int64_t progressed = words.progressed.load(std::memory_order_acquire);
  const std::int64_t submitted = words.submitted.load(std::memory_order_relaxed);
  try {
    const auto bytes = seat.page->read();
    if (!bytes.empty()) status = negotiation::decode_status(bytes, ranks_);
  } catch (const negotiation::ProtocolError&) {
    status = {};  // a faulty process has overwritten the page; treat it as empty
  }
  status.rank = seat.rank;
  status.process = seat.process;
  status.state = node::process_state(seat.process);
  const TimePoint begun = begun_.load(std::memory_order_relaxed);
  if (progressed != 0)
    status.heard = since(std::max(progressed, begun.time_since_epoch().count()), now);
  for (negotiation::WaitingOperation& operation : status.operations)
    operation.waited += status.heard;
  status.submitted = submitted != 0;
  status.idle = since(submitted, now);
  status.blocked = status.blocked && status.heard <= fresh;
  return status;
}

std::vector<RankStatus> StatusBoard::read_all(TimePoint now) const {
  std::vector<RankStatus> all;
  for (const Seat& seat : seats_) all.push_back(read(seat, now));
  return all;
}

RankStatus StatusBoard::read_rank(int rank, TimePoint now) const {
  return shows(rank) ? read(seats_[seat_of(rank)], now) : RankStatus{.rank = rank};
}

std::vector<int> StatusBoard::ended() const {
  std::vector<int> ranks;
  for (std::size_t seat = 0; seat < seats_.size(); ++seat) {
    const auto& words = seats_[seat].page->words();
    // Acquire, for the release in `publish_end`: the reason is on the page.
    if (seat != own_ && (words.flags.load(std::memory_order_acquire) & StatusPage::ended) != 0)
      ranks.push_back(seats_[seat].rank);
  }
  return ranks;
}

int StatusBoard::blocked(TimePoint now) const {
  int count = 0;
  for (const Seat& seat : seats_) {
    // Relaxed: the count is only a hint to read the whole statuses.
    const auto& words = seat.page->words();
    if ((words.flags.load(std::memory_order_relaxed) & StatusPage::blocked) != 0 &&
        since(words.progressed.load(std::memory_order_relaxed), now) <= fresh)
      ++count;
  }
  return count;
}

}  // namespace kolo::internal::session
