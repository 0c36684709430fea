// SPDX-License-Identifier: Apache-2.0
// State that outlives a session: ranks that come later, futures, signal handlers.
#include <string>
#include <utility>

#include "journey.hpp"
#include "kolo/kolo.hpp"

namespace kolo::internal::journeys {
namespace {

// A session has more descriptors than MPI opens by the way.
constexpr std::ptrdiff_t few_descriptors = 4;

/// Rank 0's values on all ranks, outside sessions.
template <typename Values>
void share([[maybe_unused]] Values& values) {
#ifdef KOLO_TEST_MPI
  auto size = static_cast<std::int64_t>(values.size());
  MPI_Bcast(&size, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
  values.resize(static_cast<std::size_t>(size));
  MPI_Bcast(values.data(), static_cast<int>(values.size() * sizeof(values[0])), MPI_BYTE, 0,
            MPI_COMM_WORLD);
#else
  fail("some of the ranks cannot have a session without MPI");
#endif
}

Replica shared(const Replica& replica) {
  std::string bytes = to_bytes(replica);
  share(bytes);
  Replica same = replica;
  from_bytes(bytes, same);
  return same;
}

}  // namespace

/// Ranks that were in no session yet learn from rank 0 how far the program is.
void Journey::take_in() {
  stage("ranks are taken in");
  std::vector<std::int64_t> now{
      epoch_, branch_, visits_, saved_step_, rolled_back_ ? 1 : 0, returned_ ? 1 : 0};
  std::vector<std::int64_t> over(over_.begin(), over_.end());
  std::vector<std::int64_t> epochs;
  for (const auto& [epoch, replicas] : at_start_of_) epochs.push_back(epoch);
  share(now);
  share(over);
  share(epochs);
  const bool was_there = rank_ < program_.session_ranks(false);
  const Replica first = shared(everybody_.front());
  if (!was_there) everybody_ = {first};
  for (const std::int64_t number : epochs) {
    const auto epoch = static_cast<int>(number);
    const Replica start = shared(was_there ? at_start_of_.at(epoch).front() : first);
    if (!was_there) at_start_of_[epoch] = {start};
  }
  epoch_ = static_cast<int>(now[0]);
  branch_ = static_cast<int>(now[1]);
  visits_ = static_cast<int>(now[2]);
  saved_step_ = now[3];
  rolled_back_ = now[4] != 0;
  returned_ = now[5] != 0;
  over_ = {over.begin(), over.end()};
}

void Journey::keep_future() {
  stage("a future to keep");
  kept_.push_back(allreduce_async(std::vector<float>(8, static_cast<float>(rank_ + 1)),
                                  {.name = "kept", .op = ReduceOp::max}));
  kept_.back().wait();
}

void Journey::check_kept() {
  stage("futures that were kept");
  for (auto& future : kept_) {
    const float largest = future.get().front();
    if (largest != static_cast<float>(program_.session_ranks(false)) &&
        largest != static_cast<float>(program_.session_ranks(true)))
      throw Unexpected("a future has another value after its session");
  }
}

void Journey::check_after_session(std::ptrdiff_t descriptors) const {
  stage("after a session");
  const std::ptrdiff_t more = open_descriptors() - descriptors;
  if (program_.has(Feature::kept_future) && more > few_descriptors)
    throw Unexpected("a session that has ended keeps " + std::to_string(more) + " descriptors");
  if (!program_.has(Feature::wrong_argument)) return;
  float value = 1.0F;
  try {
    allreduce(value, {.name = "too late"});
  } catch (const NotInitialized& error) {
    const std::string text = error.what();
    if (text.find("allreduce") != std::string::npos && error.tensor() == "too late") return;
    throw Unexpected("NotInitialized does not name the operation: " + text);
  }
  throw Unexpected("an allreduce without a session did not fail");
}

void Journey::check_signal() {
  stage("a signal");
  handler_->raise();
  barrier({.name = "signal"});
  SignalHandler::require_record();
}

}  // namespace kolo::internal::journeys
