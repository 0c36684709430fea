// SPDX-License-Identifier: Apache-2.0
#include "messenger/mpi_messenger.hpp"

#include <algorithm>
#include <functional>

#include "node/error_codes.hpp"

namespace kolo::internal::messenger {
namespace {

using node::check_mpi;

using namespace std::chrono_literals;

// After a batch, MPI is called continuously for `lively_for`, then at intervals.
constexpr auto lively_for = 200ms;
constexpr auto activity_interval = 100ms;
constexpr auto max_gap = 2s;  // a longer gap between calls means that the process was suspended

}  // namespace

int find_max_tag() {
  int* max_tag = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&max_tag), &found),
            "MPI_Comm_get_attr");
  return found != 0 ? std::max(*max_tag, guaranteed_max_tag) : guaranteed_max_tag;
}

void MpiActivity::end(TimePoint now) {
  if (--batches_ > 0) return;
  owes_ = lively_ = true;
  since_end_ = 0ns;
  last_ = now;
}

void MpiActivity::call_if_due(MPI_Comm comm, TimePoint now) {
  if (!owes_ || batches_ > 0) return;
  const auto passed = now - last_;
  if (!lively_ && passed < activity_interval) return;
  last_ = now;
  // Time during which the process was suspended does not count.
  since_end_ += std::min<std::chrono::nanoseconds>(passed, max_gap);
  lively_ = since_end_ < lively_for;
  owes_ = afterwards_ == 0ns || since_end_ < afterwards_;
  int found = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
}

MpiMessenger::MpiMessenger(MPI_Comm comm, int max_tag, std::chrono::nanoseconds afterwards)
    : comm_(comm), max_tag_(max_tag), activity_(afterwards) {
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
}

Channel& MpiMessenger::open() {
  if (free_.empty()) {
    free_.reserve(channels_.size() + 1);  // `release` must not throw
    free_.push_back(&channels_.emplace_back(comm_));
  }
  MpiChannel& channel = *free_.back();
  free_.pop_back();
  activity_.begin();
  return channel;
}

bool MpiMessenger::release(Channel& channel) noexcept {
  activity_.end();
  auto& own = static_cast<MpiChannel&>(channel);
  // A channel that still has requests is not reused.
  if (!own.withdraw()) return false;
  free_.push_back(&own);
  return true;
}

bool MpiMessenger::progress() {
  activity_.call_if_due(comm_);
  return false;
}

void MpiMessenger::MpiChannel::send(int peer, Tag tag, const std::byte* data, std::int64_t bytes,
                                    Token token) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(tag), comm_,
                      &request),
            "MPI_Isend");
  requests_.push_back(request);
  entries_.push_back({token, false});
}

void MpiMessenger::MpiChannel::receive(int peer, Tag tag, std::byte* data, std::int64_t bytes,
                                       Token token) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(tag), comm_,
                      &request),
            "MPI_Irecv");
  requests_.push_back(request);
  entries_.push_back({token, true});
}

void MpiMessenger::MpiChannel::progress(std::vector<Token>& done) {
  if (requests_.empty()) return;
  finished_.resize(requests_.size());
  int count = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                         finished_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  if (count <= 0) return;
  // Remove from the last to the first, so that the request that moves into the place of a finished
  // one is not finished itself.
  finished_.resize(static_cast<std::size_t>(count));
  std::ranges::sort(finished_, std::greater<>());
  for (const int index : finished_) {
    const auto at = static_cast<std::size_t>(index);
    done.push_back(entries_[at].token);
    remove(at);
  }
}

void MpiMessenger::MpiChannel::remove(std::size_t at) {
  requests_[at] = requests_.back();
  entries_[at] = entries_.back();
  requests_.pop_back();
  entries_.pop_back();
}

// After a failure the program owns the tensors again and may free them. A receive that no message
// has reached yet is canceled, so that MPI does not write to the tensors when a later session calls
// it. Sends, and receives that have begun, cannot be withdrawn.
bool MpiMessenger::MpiChannel::withdraw() noexcept {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return requests_.empty();
  for (std::size_t at = requests_.size(); at-- > 0;) {
    if (!entries_[at].receives) continue;
    int done = requests_[at] == MPI_REQUEST_NULL ? 1 : 0;  // already null if it has failed
    if (done != 0) {
      remove(at);
      continue;
    }
    if (MPI_Cancel(&requests_[at]) != MPI_SUCCESS ||
        MPI_Test(&requests_[at], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0)
      continue;
    remove(at);
  }
  return requests_.empty();
}

}  // namespace kolo::internal::messenger
