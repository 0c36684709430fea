// SPDX-License-Identifier: Apache-2.0
// One session after another.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "base/failure.hpp"
#include "base/log.hpp"
#include "elastic/state.hpp"
#include "kolo/elastic.hpp"
#include "kolo/session.hpp"
#include "session/api/current.hpp"
#include "session/startup/job.hpp"

namespace kolo::elastic {

using namespace internal;
namespace {

std::atomic<bool> running{false};

class Running {
 public:
  Running() {
    if (running.exchange(true))
      throw InvalidArgument("kolo::elastic::run is running already: it cannot be nested");
  }
  ~Running() { running = false; }
  Running& operator=(Running&&) = delete;
};

/// All ranks are in `train`, or on the way there or from it.
class InTraining {
 public:
  InTraining() { session::defer_agreements(false); }
  ~InTraining() { session::defer_agreements(true); }
  InTraining& operator=(InTraining&&) = delete;
};

/// The session is over on all ranks. Rethrows the exception that is being handled, if nothing
/// follows this session.
void go_on_without(const Error& lost) {
  if (!session::is_elastic_job()) throw;
  log(LogLevel::warning, std::string("the session is over: ") + lost.what());
  session::abandon_session(lost);
}

/// Ranks that do not fit to the others keep these from going on. Rethrows the exception that is
/// being handled, if this is one of them.
void refuse_unfit(const Mismatch& error) {
  const bool is_own =
      error.ranks().empty() || std::ranges::find(error.ranks(), rank()) != error.ranks().end();
  if (is_own || !session::is_elastic_job()) throw;
  session::accuse(error.ranks(), error.what());
  go_on_without(error);
}

}  // namespace

bool is_elastic() noexcept { return session::is_elastic_job(); }

struct State::Session {
  static bool begin(State& state) {
    try {
      state.sync();
      return true;
    } catch (const Mismatch& error) {
      refuse_unfit(error);
      return false;
    }
  }

  /// True if the training is done, false if another session is to follow.
  static bool train(State& state, const std::function<void()>& train) {
    const InTraining in_training;
    try {
      if (!begin(state)) return false;
      for (const auto& reset : state.data_->resets) reset();
      train();
      static_cast<void>(state.data_->agree(Data::Call::end_of_training));
      return true;
    } catch (const MembershipChanged&) {
      session::end_session(true, "");
    } catch (const PeerLeft& error) {
      go_on_without(error);
    } catch (const Stalled& error) {
      session::accuse(error.ranks(), error.what());
      go_on_without(error);
    } catch (const BackendError& error) {
      // Of what broke because a rank was lost.
      if (!session::session_is_interrupted()) throw;
      go_on_without(error);
    }
    return false;
  }
};

void run(State& state, const std::function<void()>& train) {
  const Running guard;
  static_cast<void>(session::current_engine("kolo::elastic::run"));
  try {
    while (!State::Session::train(state, train)) {
      session::offer_commit(state.commits());
      session::restart_session();
    }
  } catch (...) {
    if (session::is_elastic_job()) {
      const std::string reason = message_of_current_exception();
      session::fail_job(reason);
      if (initialized())
        session::abandon_session(
            PeerLeft(fmt::format("rank {} has failed: {}", rank(), reason), "", {rank()}));
    }
    throw;
  }
}

}  // namespace kolo::elastic
