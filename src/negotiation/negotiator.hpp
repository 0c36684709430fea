// The protocol of one rank: events in, actions out. No threads, no clock, no input or output.
//
// Feed it what has happened, then `take` what is to be done. What gathers between two calls of
// `take` travels as one message per neighbour, and, at the root, may become one batch.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "negotiation/actions.hpp"
#include "negotiation/catalogue.hpp"
#include "negotiation/message.hpp"
#include "negotiation/sequencer.hpp"
#include "negotiation/tally.hpp"
#include "negotiation/tree.hpp"

namespace kolo::negotiation {

struct NegotiatorOptions {
  Place place{};
  std::uint64_t session = 0;  // in every message; a message of another session is ignored
  std::int64_t fusion_threshold = 64 << 20;
  std::int64_t cache_capacity = 8192;
  std::chrono::nanoseconds stall_warning{};   // 0: never
  std::chrono::nanoseconds stall_shutdown{};  // 0: never
};

/// Not thread-safe. Throws ProtocolError for a message that breaks the rules; it is of no use then.
class Negotiator {
 public:
  explicit Negotiator(const NegotiatorOptions& options);

  /// This rank submits an operation. It has no other one pending under `key`.
  void on_submit(Ticket ticket, const Key& key, const Descriptor& descriptor);
  void on_message(int peer, std::span<const std::byte> bytes);
  void on_time(TimePoint now);
  /// This rank has executed one more batch.
  void on_done();
  /// This rank leaves: it submits nothing more, but goes on passing messages.
  void on_leave(bool clean, const std::string& reason);

  [[nodiscard]] Actions take();

  /// True once all ranks have left and this one need not pass on anything more.
  [[nodiscard]] bool ended() const { return ended_; }
  /// True once this rank's own departure stands in the log: everyone learns of it.
  [[nodiscard]] bool left() const { return left_; }
  /// True if an operation submitted here, or one this rank knows of, waits for an answer.
  [[nodiscard]] bool outstanding() const { return !own_.empty() || !tally_.empty(); }

 private:
  struct Own {
    Ticket ticket;
    OperationType type;
  };

  /// The root's question about a key that is late, and what follows the answers.
  struct Inquiry {
    Key key;
    bool fatal;  // a stall that ends the session, else a warning
    TimePoint asked;
  };

  [[nodiscard]] bool is_root() const { return place_.parent < 0; }
  void on_upward(const Child& child, const Upward& message);
  void count(std::optional<Readiness> complete);
  void sequence();
  void append_departure(const Departure& departure);
  void append_stall(const Lag& stalled);
  void inquire(const Key& key, bool fatal);
  void conclude_inquiries();
  void apply_log();

  void apply(const Entry& entry);
  void apply(const BatchEntry& batch, std::uint64_t sequence);
  void apply(const MismatchEntry& entry);
  void apply(const DepartureEntry& entry);
  void apply(const StallEntry& entry);
  void apply(const InquiryEntry& entry);
  Ticket answered(const Key& key);
  void break_off(std::variant<Departure, Lag> cause);
  [[nodiscard]] Failure broken_failure(const Key& key, OperationType type) const;

  Place place_;
  NegotiatorOptions options_;
  TimePoint now_{};
  std::unordered_map<Key, Own, KeyHash> own_;  // submitted here, not answered yet
  Tally tally_;
  Catalogue catalogue_;
  Sequencer sequencer_;  // used by the root only
  Upward upward_;        // for the parent, at the next take
  Downward downward_;    // at the root: for the children, at the next take
  Actions actions_;
  std::uint64_t next_sequence_ = 0;
  int unfinished_ = 0;  // batches that this rank has not executed yet
  int departures_ = 0;  // counted by the root
  std::vector<Inquiry> inquiries_;
  // Why nothing more can complete: the first departure or stall in the log.
  std::optional<std::variant<Departure, Lag>> broken_;
  bool left_ = false;
  bool ended_ = false;
};

}  // namespace kolo::negotiation
