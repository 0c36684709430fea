// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: a replacement for MPI, so that the engine's threads can be
// tested under sanitizers that do not work with MPI.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "session/engine/links.hpp"
#include "session/engine/shared_board.hpp"

namespace kolo::internal::test {

/// The state shared by the ranks. Thread-safe.
class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks)
      : ranks_(ranks),
        inboxes_(static_cast<std::size_t>(ranks)),
        words_(static_cast<std::size_t>(ranks)),
        standings_(static_cast<std::size_t>(ranks)),
        pages_(static_cast<std::size_t>(ranks)) {
    for (node::BellWord& word : words_) bells_.emplace_back(word, node::Doorbell::open());
  }

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const node::Doorbell& bell(int rank) const {
    return bells_[static_cast<std::size_t>(rank)];
  }

  /// True if a thread that waits for an operation of this rank sleeps, or is about to.
  [[nodiscard]] bool is_asleep(int rank) const {
    constexpr auto waiter = static_cast<std::uint32_t>(node::Listener::waiter);
    return (words_[static_cast<std::size_t>(rank)].listener & waiter) != 0;
  }

  /// A board for this rank.
  [[nodiscard]] session::SharedPlanBoard make_board(int rank) {
    std::vector<session::SharedPlanBoard::Peer> places;
    for (std::size_t i = 0; i < standings_.size(); ++i)
      places.push_back({&standings_[i], &bells_[i]});
    return {std::move(places), rank};
  }

  /// The places where the ranks publish their status.
  [[nodiscard]] std::vector<session::StatusBoard::Seat> seats() {
    std::vector<session::StatusBoard::Seat> seats;
    for (int rank = 0; rank < ranks_; ++rank)
      seats.push_back({rank, ::getpid(), &pages_[static_cast<std::size_t>(rank)], &bell(rank)});
    return seats;
  }

  /// Makes this rank's backend fail from now on.
  void break_backend(int rank) { broken_ = rank; }
  [[nodiscard]] bool is_broken(int rank) const { return broken_ == rank; }

  /// Makes this rank's backend unable to prepare batches from now on.
  void break_preparation(int rank) { cannot_prepare_ = rank; }
  [[nodiscard]] bool cannot_prepare(int rank) const { return cannot_prepare_ == rank; }

  /// Makes each rank's driver call `callback(rank)` before it starts a batch.
  void before_batches(std::function<void(int rank)> callback) { callback_ = std::move(callback); }
  void call_back(int rank) const {
    if (callback_) callback_(rank);
  }

  /// Makes each rank's driver call `callback()` just before a batch ends.
  void before_ends(std::function<void()> callback) { before_end_ = std::move(callback); }
  void call_before_end() const {
    if (before_end_) before_end_();
  }

  /// Prevents batches from ending until all are released.
  void hold_batches() { held_ = true; }
  void release_batches() {
    held_ = false;
    for (const node::Doorbell& bell : bells_) bell.ring(node::WakeReason::data);
  }
  /// Whether every rank has begun `batches` batches.
  [[nodiscard]] bool have_begun(std::size_t batches) {
    const std::lock_guard lock(mutex_);
    const auto last = sums_.find(batches - 1);
    return last != sums_.end() && last->second.contributions == ranks_;
  }

  /// Makes all ranks run their periodic checks in their next pass.
  void raise_alarms() {
    for (node::StatusPage& page : pages_) page.words().alarm.store(1, std::memory_order_release);
  }

  void send(int from, int to, transport::Message message) {
    {
      const std::lock_guard lock(mutex_);
      inboxes_[static_cast<std::size_t>(to)].emplace_back(from, std::move(message));
      ++messages_;
    }
    bell(to).ring();
  }

  /// The number of messages sent so far.
  [[nodiscard]] int messages() {
    const std::lock_guard lock(mutex_);
    return messages_;
  }

  std::deque<std::pair<int, transport::Message>> take_inbox(int rank) {
    const std::lock_guard lock(mutex_);
    return std::exchange(inboxes_[static_cast<std::size_t>(rank)], {});
  }

  /// Adds a rank's elements to the sum of batch `number`.
  void contribute(std::size_t number, const std::vector<double>& elements) {
    {
      const std::lock_guard lock(mutex_);
      Sum& sum = sums_[number];
      sum.elements.resize(elements.size());
      for (std::size_t i = 0; i < elements.size(); ++i) sum.elements[i] += elements[i];
      if (++sum.contributions < ranks_) return;
    }
    for (const node::Doorbell& bell : bells_) bell.ring(node::WakeReason::data);
  }

  /// The sum, once every rank has contributed; otherwise null. Its address does not change.
  const std::vector<double>* result(std::size_t number) {
    const std::lock_guard lock(mutex_);
    const Sum& sum = sums_[number];
    return !held_ && sum.contributions == ranks_ ? &sum.elements : nullptr;
  }

 private:
  struct Sum {
    std::vector<double> elements;
    int contributions = 0;
  };

  int ranks_;
  std::function<void(int rank)> callback_{};
  std::function<void()> before_end_{};
  std::atomic<int> broken_{-1};
  std::atomic<int> cannot_prepare_{-1};
  std::atomic<bool> held_{false};
  std::mutex mutex_;
  int messages_ = 0;
  std::vector<std::deque<std::pair<int, transport::Message>>> inboxes_;
  std::vector<node::BellWord> words_;
  std::vector<session::SharedPlanBoard::Word> standings_;
  std::vector<node::StatusPage> pages_;
  std::vector<node::Doorbell> bells_{};
  std::map<std::size_t, Sum> sums_;  // by the batch's number: all ranks start the same batches
};

/// A backend for sums of doubles and barriers, with its links and transport.
class ThreadLinks : public session::Links, transport::Transport, backend::Backend {
 public:
  ThreadLinks(std::shared_ptr<ThreadWorld> world, int rank)
      : world_(std::move(world)), rank_(rank), board_(world_->make_board(rank)) {}

  [[nodiscard]] transport::Transport& transport() override { return *this; }
  [[nodiscard]] backend::Backend& backend() override { return *this; }
  [[nodiscard]] const node::Doorbell& bell() const override { return world_->bell(rank_); }
  [[nodiscard]] bool must_poll() const override { return false; }
  [[nodiscard]] negotiation::PlanBoard* board() override { return &board_; }
  [[nodiscard]] std::string data_path() const override { return "threads"; }
  [[nodiscard]] std::vector<session::StatusBoard::Seat> seats() const override {
    return world_->seats();
  }

 private:
  class Execution : public backend::Execution {
   public:
    Execution(ThreadWorld& world, int rank, std::size_t number, backend::Batch batch)
        : world_(world), rank_(rank), number_(number), batch_(std::move(batch)) {}

    [[nodiscard]] backend::Progress step() override {
      if (world_.is_broken(rank_)) throw std::runtime_error("the cable is cut");
      const std::vector<double>* sum = world_.result(number_);
      if (sum == nullptr) return backend::Progress::waiting;
      auto next = sum->begin();
      for (const backend::BatchTensor* member : batch_.tensors) {
        auto* element = static_cast<double*>(member->output);
        for (std::int64_t i = 0; i < member->elements(); ++i) *element++ = *next++;
      }
      world_.call_before_end();
      return backend::Progress::done;
    }

   private:
    ThreadWorld& world_;
    int rank_;
    std::size_t number_;
    backend::Batch batch_;
  };

  void send(int peer, transport::Message message) override {
    world_->send(rank_, peer, std::move(message));
  }

  bool poll(const Receiver& receive) override {
    const auto arrived = world_->take_inbox(rank_);
    for (const auto& [peer, message] : arrived) receive(peer, message);
    return !arrived.empty();
  }

  [[nodiscard]] bool flushed() const override { return true; }

  [[nodiscard]] std::unique_ptr<backend::Execution> start(backend::Batch batch) override {
    world_->call_back(rank_);
    std::vector<double> elements;
    for (const backend::BatchTensor* member : batch.tensors) {
      const auto* begin = static_cast<const double*>(member->input);
      elements.insert(elements.end(), begin, begin + member->elements());
    }
    world_->contribute(started_, elements);
    return std::make_unique<Execution>(*world_, rank_, started_++, std::move(batch));
  }

  [[nodiscard]] std::unique_ptr<backend::Execution> prepare(
      const backend::Batch& /*batch*/) override {
    if (world_->cannot_prepare(rank_)) throw std::runtime_error("the cable is cut");
    return nullptr;
  }

  std::shared_ptr<ThreadWorld> world_;
  int rank_;
  session::SharedPlanBoard board_;
  std::size_t started_ = 0;
};

}  // namespace kolo::internal::test
