#include "session/mpi_activity.hpp"

#include "node/mpi_error.hpp"

namespace kolo::session {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr auto lively_for = 200ms;
constexpr auto interval = 100ms;

}  // namespace

void MpiActivity::end() {
  if (--batches_ > 0) return;
  owes_ = lively_ = true;
  ended_at_ = steady_clock::now();
}

void MpiActivity::look(MPI_Comm comm) {
  if (!owes_ || batches_ > 0) return;
  const TimePoint now = steady_clock::now();
  lively_ = now - ended_at_ < lively_for;
  if (!lively_ && now < next_) return;
  next_ = now + interval;
  owes_ = afterwards_ == 0ns || now - ended_at_ < afterwards_;
  int found = 0;
  node::check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, MPI_STATUS_IGNORE),
                  "MPI_Iprobe");
}

}  // namespace kolo::session
