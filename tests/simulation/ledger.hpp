// SPDX-License-Identifier: Apache-2.0
// The submissions of all ranks and their outcomes, in a few bytes per submission.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/key.hpp"
#include "negotiation/wire/actions.hpp"
#include "program.hpp"

namespace kolo::internal::simulation {

using negotiation::Ticket;

using KeyNumber = std::int32_t;

class Ledger {
 public:
  enum class State : std::uint8_t {
    pending,   // not answered
    executed,  // in a batch
    failed,
    answered,  // with a number
    lost,      // the loss of a rank ended its session
  };
  struct Submission {
    KeyNumber key;
    std::int32_t operation;
    Time at;
    State state = State::pending;
  };

  explicit Ledger(int ranks)
      : submissions_(static_cast<std::size_t>(ranks)), pending_(static_cast<std::size_t>(ranks)) {}

  KeyNumber number_of(const Key& key) {
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<KeyNumber>(keys_.size()));
    if (is_new) keys_.push_back(&found->first);
    return found->second;
  }
  [[nodiscard]] const Key& key(KeyNumber number) const {
    return *keys_[static_cast<std::size_t>(number)];
  }

  Ticket submit(int rank, KeyNumber key, int operation, Time now) {
    std::vector<Submission>& own = submissions_[static_cast<std::size_t>(rank)];
    own.push_back({key, operation, now});
    std::vector<std::int32_t>& pending = pending_[static_cast<std::size_t>(rank)];
    if (pending.size() <= static_cast<std::size_t>(key))
      pending.resize(static_cast<std::size_t>(key) + 1);
    pending[static_cast<std::size_t>(key)] = static_cast<std::int32_t>(own.size());
    return own.size() - 1;
  }
  /// The ticket of the pending operation of `rank` under `key`.
  [[nodiscard]] std::optional<Ticket> pending(int rank, KeyNumber key) const {
    const std::vector<std::int32_t>& pending = pending_[static_cast<std::size_t>(rank)];
    if (pending.size() <= static_cast<std::size_t>(key) ||
        pending[static_cast<std::size_t>(key)] == 0)
      return std::nullopt;
    return static_cast<Ticket>(pending[static_cast<std::size_t>(key)] - 1);
  }
  /// Returns null if the rank made no such submission.
  [[nodiscard]] const Submission* find(int rank, Ticket ticket) const {
    const std::vector<Submission>& own = submissions_[static_cast<std::size_t>(rank)];
    return ticket < own.size() ? &own[ticket] : nullptr;
  }
  [[nodiscard]] const std::vector<Submission>& of(int rank) const {
    return submissions_[static_cast<std::size_t>(rank)];
  }
  /// Changes the state of a pending submission.
  void settle(int rank, Ticket ticket, State state) {
    Submission& submission = submissions_[static_cast<std::size_t>(rank)][ticket];
    submission.state = state;
    pending_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(submission.key)] = 0;
  }
  /// Marks all pending submissions of the rank as lost; they remain in the ledger.
  void lose(int rank) {
    std::vector<Submission>& own = submissions_[static_cast<std::size_t>(rank)];
    for (std::size_t ticket = 0; ticket < own.size(); ++ticket)
      if (own[ticket].state == State::pending) own[ticket].state = State::lost;
  }

 private:
  std::unordered_map<Key, KeyNumber, KeyHash> numbers_;
  std::vector<const Key*> keys_;
  std::vector<std::vector<Submission>> submissions_;  // by rank
  std::vector<std::vector<std::int32_t>> pending_;    // by rank and key: the ticket + 1, or 0
};

}  // namespace kolo::internal::simulation
