// SPDX-License-Identifier: Apache-2.0
// Messages over MPI's point-to-point communication, and the calls that MPI needs to make progress
// after a batch.
#pragma once

#include <mpi.h>

#include <chrono>
#include <deque>
#include <vector>

#include "messenger/messenger.hpp"

namespace kolo::internal::messenger {

/// The highest tag that every MPI supports.
inline constexpr int guaranteed_max_tag = 32767;
/// The highest tag of this MPI library, the same on all ranks.
[[nodiscard]] int find_max_tag();

/// Calls MPI after a batch. Sent data may wait inside MPI for room in a socket even when this
/// rank's part of the batch is done, and it moves only while MPI is called. So MPI is called for
/// `afterwards`, often at first and then at intervals; a rank that still has not received by then
/// counts as lost. Time during which this process was suspended does not count: the receiver may
/// have been suspended too. Used by one thread at a time.
class MpiActivity {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `afterwards` is how long MPI is called after a batch; 0: forever.
  explicit MpiActivity(std::chrono::nanoseconds afterwards) : afterwards_(afterwards) {}

  void begin() { ++batches_; }
  void end(TimePoint now = std::chrono::steady_clock::now());

  /// True while batches run: MPI reads and writes their memory.
  [[nodiscard]] bool has_batches() const { return batches_ > 0; }
  /// True while batches run and shortly afterwards: the driver should poll often.
  [[nodiscard]] bool lively() const { return batches_ > 0 || lively_; }
  /// Calls MPI with any communicator if a call is due.
  void call_if_due(MPI_Comm comm, TimePoint now = std::chrono::steady_clock::now());
  /// True until the last call has been made.
  [[nodiscard]] bool calls_are_due() const { return owes_; }

 private:
  std::chrono::nanoseconds afterwards_;
  int batches_ = 0;
  bool owes_ = false;
  bool lively_ = false;
  std::chrono::nanoseconds since_end_{0};  // excludes suspensions
  TimePoint last_{};
};

/// MPI offers nothing to sleep on, so the driver polls while a channel is open and shortly
/// afterwards. MPI neither notices a lost rank nor withdraws a send.
class MpiMessenger : public Messenger {
 public:
  /// `comm` carries no other traffic, returns errors (MPI_ERRORS_RETURN) and outlives the
  /// messenger. `max_tag` is the highest tag to use, the same on all ranks. `afterwards` is that of
  /// MpiActivity.
  explicit MpiMessenger(MPI_Comm comm, int max_tag = guaranteed_max_tag,
                        std::chrono::nanoseconds afterwards = {});

  [[nodiscard]] std::string_view name() const override { return "mpi"; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] Tag tag_count() const override { return static_cast<Tag>(max_tag_) + 1; }
  [[nodiscard]] Channel& open() override;
  [[nodiscard]] bool release(Channel& channel) noexcept override;
  bool progress() override;
  [[nodiscard]] bool may_sleep() override { return !activity_.lively(); }
  [[nodiscard]] bool uses_memory() const override { return activity_.has_batches(); }
  void close(std::chrono::nanoseconds /*patience*/) noexcept override {}

 private:
  /// Keeps the requests and their tokens in parallel arrays, as MPI_Testsome requires.
  class MpiChannel : public Channel {
   public:
    explicit MpiChannel(MPI_Comm comm) : comm_(comm) {}

    void send(int peer, Tag tag, const std::byte* data, std::int64_t bytes, Token token) override;
    void receive(int peer, Tag tag, std::byte* data, std::int64_t bytes, Token token) override;
    void progress(std::vector<Token>& done) override;

    /// Cancels receives. True if no request is left.
    bool withdraw() noexcept;

   private:
    struct Entry {
      Token token;
      bool receives;
    };
    void remove(std::size_t at);

    MPI_Comm comm_;
    std::vector<MPI_Request> requests_{};
    std::vector<Entry> entries_{};
    std::vector<int> finished_{};
  };

  MPI_Comm comm_;
  int max_tag_;
  int rank_ = 0;
  int size_ = 1;
  MpiActivity activity_;
  std::deque<MpiChannel> channels_{};  // a deque: channels must not move
  std::vector<MpiChannel*> free_{};
};

}  // namespace kolo::internal::messenger
