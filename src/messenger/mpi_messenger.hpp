// SPDX-License-Identifier: Apache-2.0
// Data over MPI's point-to-point messages, and the calls that MPI needs to make progress after a
// batch.
#pragma once

#include <mpi.h>

#include <chrono>
#include <deque>
#include <vector>

#include "messenger/messenger.hpp"

namespace kolo::internal::messenger {

/// The highest tag that every MPI has.
inline constexpr int guaranteed_max_tag = 32767;
/// The highest tag of this MPI, the same on all ranks.
[[nodiscard]] int find_max_tag();

/// What a rank has sent may wait inside MPI for room in a socket even when its own part of a batch
/// is done, and moves only when MPI is called. So MPI is called for a while after the last batch:
/// often at first, then at intervals, until a rank that does not receive it counts as lost. Time in
/// which this process was suspended does not count: the receiver may have been suspended with it.
/// One thread at a time.
class MpiActivity {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `afterwards`: for how long. 0: forever.
  explicit MpiActivity(std::chrono::nanoseconds afterwards) : afterwards_(afterwards) {}

  void begin() { ++batches_; }
  void end(TimePoint now = std::chrono::steady_clock::now());

  /// True while batches are under way: MPI reads and writes their memory.
  [[nodiscard]] bool has_batches() const { return batches_ > 0; }
  /// True while batches are under way, and shortly after: the driver should poll often.
  [[nodiscard]] bool lively() const { return batches_ > 0 || lively_; }
  /// Calls MPI, on any communicator, if it is time to.
  void call_if_due(MPI_Comm comm, TimePoint now = std::chrono::steady_clock::now());
  /// True until the last call is made.
  [[nodiscard]] bool calls_are_due() const { return owes_; }

 private:
  std::chrono::nanoseconds afterwards_;
  int batches_ = 0;
  bool owes_ = false;
  bool lively_ = false;
  std::chrono::nanoseconds since_end_{0};  // without suspensions
  TimePoint last_{};
};

/// MPI has nothing to sleep on, so it is polled while a channel is open and shortly after. It
/// notices no lost rank, and cannot take back what it has begun.
class MpiMessenger : public Messenger {
 public:
  /// `comm` carries nothing else, returns errors (MPI_ERRORS_RETURN) and outlives this. `max_tag`,
  /// the same on all ranks, is the highest tag to be used. `afterwards` as for MpiActivity.
  explicit MpiMessenger(MPI_Comm comm, int max_tag = guaranteed_max_tag,
                        std::chrono::nanoseconds afterwards = {});

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
  /// Parallel arrays: the requests of MPI, and their tokens.
  class MpiChannel : public Channel {
   public:
    explicit MpiChannel(MPI_Comm comm) : comm_(comm) {}

    void send(int peer, Tag tag, const std::byte* data, std::int64_t bytes, Token token) override;
    void receive(int peer, Tag tag, std::byte* data, std::int64_t bytes, Token token) override;
    void progress(std::vector<Token>& done) override;

    /// True if nothing is left.
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
  std::deque<MpiChannel> channels_{};  // they keep their places
  std::vector<MpiChannel*> free_{};
};

}  // namespace kolo::internal::messenger
