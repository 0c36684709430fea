// SPDX-License-Identifier: Apache-2.0
// Runs the training of an elastic job in one session after another.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/failure.hpp"
#include "base/finally.hpp"
#include "base/log.hpp"
#include "base/session_clock.hpp"
#include "elastic/state.hpp"
#include "kolo/elastic.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/session.hpp"
#include "session/api/current.hpp"
#include "session/job/job.hpp"

namespace kolo::elastic {

using namespace internal;
namespace {

using std::chrono::steady_clock;

// The time to wait for the report of a lost rank after an error that its loss may have caused.
constexpr std::chrono::seconds patience{1};

session::JobMembership& membership() { return session::this_job().membership; }

/// Refuses a second call of `run` in an elastic job: a process that joins later would be in its
/// first call while the others are in their second.
void refuse_second_run() {
  if (session::this_job().has_run_elastically.exchange(true) && membership().is_elastic())
    throw InvalidArgument(
        "kolo::elastic::run was called before, and an elastic job calls it once: put all of the "
        "training into one function, and record its progress in a part of the state");
}

/// True if the current session has lost ranks, as far as this process knows or learns within
/// `patience`.
bool session_is_over() {
  SessionClock clock(steady_clock::now());
  const auto until = clock.now() + patience;
  while (true) {
    const auto engine = session::find_engine();
    if (!engine || engine->has_missed_ranks() || membership().is_interrupted()) return true;
    static_cast<void>(clock.advance(steady_clock::now()));
    if (clock.now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Ends this session on all ranks.
void abandon(const Error& lost) {
  log(LogLevel::warning, std::string("the session is over: ") + lost.what());
  session::abandon_session(lost);
}

// The next two functions are called while an exception is handled. They end the session so that the
// next one can follow, or rethrow the exception if no session follows.

/// Handles an error that says that ranks are lost or do not respond.
void go_on_without_lost(const Error& error, bool reports) {
  if (!membership().is_elastic()) throw;
  if (!session_is_over())
    throw InvalidArgument(fmt::format(
        "an error from an earlier session was rethrown: {}. Futures end with their session: create "
        "them in the function that kolo::elastic::run calls, and do not keep them after it returns",
        error.what()));
  const bool is_own = std::ranges::find(error.ranks(), rank()) != error.ranks().end();
  if (reports && !is_own) membership().report_stalled(error.ranks(), error.what());
  abandon(error);
}

/// Handles an error that all ranks get but other ranks have caused. The ranks that caused it leave
/// `run` with an exception of their own, unless the program catches it.
void go_on_without_failed(const Error& error, bool reports) {
  const bool is_own =
      error.ranks().empty() || std::ranges::find(error.ranks(), rank()) != error.ranks().end();
  if (is_own || !membership().is_elastic()) throw;
  if (reports) membership().report_failure(error.ranks(), error.what());
  abandon(error);
}

}  // namespace

bool is_elastic() noexcept { return membership().is_elastic(); }

struct State::Session {
  /// Brings all ranks to the newest commit. False if another session is to follow.
  static bool begin(State& state) {
    try {
      state.sync();
      membership().declare_begun();
      return true;
    } catch (const Mismatch& error) {
      // The mismatch names the ranks whose parts differ.
      go_on_without_failed(error, /*reports=*/true);
      return false;
    }
  }

  /// Ends the training on all ranks. The commit between the two agreements holds the finished
  /// state. If a rank is lost before the second agreement, the others start a new session from this
  /// commit and find nothing left to do.
  static void end(State& state) {
    Data& data = *state.data_;
    static_cast<void>(data.agree(Data::Call::end_of_training));
    data.copy(data.commits + 1);
    static_cast<void>(data.agree(Data::Call::end_of_training));
  }

  /// True if the training is done, false if another session is to follow.
  static bool train(State& state, const std::function<void()>& train) {
    // While `train` runs, the state accepts no new parts, because no commit would contain them.
    state.data_->runs = true;
    const Finally stop([&] { state.data_->runs = false; });
    try {
      if (!begin(state)) return false;
      for (const auto& reset : state.data_->resets) reset();
      train();
      end(state);
      membership().declare_complete();
      return true;
    } catch (const MembershipChanged&) {
      session::end_session(true, "");
    } catch (const PeerLeft& error) {
      go_on_without_lost(error, /*reports=*/false);
    } catch (const Stalled& error) {
      go_on_without_lost(error, /*reports=*/true);
    } catch (const BackendError& error) {
      if (!membership().is_elastic() || !is_interrupted_soon()) throw;
      abandon(error);
    } catch (const BackwardFailed& error) {
      go_on_without_failed(error, /*reports=*/false);
    } catch (const HookFailed& error) {
      go_on_without_failed(error, /*reports=*/false);
    }
    return false;
  }

 private:
  /// True if the server ends the session within `patience`. This rank may have noticed the loss of
  /// a rank before the server.
  static bool is_interrupted_soon() {
    SessionClock clock(steady_clock::now());
    const auto until = clock.now() + patience;
    while (!membership().is_interrupted()) {
      static_cast<void>(clock.advance(steady_clock::now()));
      if (clock.now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
};

void run(State& state, const std::function<void()>& train) {
  std::atomic<bool>& running = session::this_job().is_in_elastic_run;
  if (running.exchange(true))
    throw InvalidArgument("kolo::elastic::run is running already: it cannot be nested");
  const Finally end([&running] { running = false; });
  static_cast<void>(session::current_engine("kolo::elastic::run"));
  refuse_second_run();
  try {
    while (!State::Session::train(state, train)) {
      membership().offer_commit(state.commits());
      session::restart_session();
    }
  } catch (const ShutDown&) {
    throw;  // not a failure of this process: the job is over, or another thread ends the process
  } catch (...) {
    if (membership().is_elastic()) {
      const std::string reason = message_of_current_exception();
      membership().fail(reason);
      if (initialized())
        session::abandon_session(
            PeerLeft(fmt::format("rank {} has failed: {}", rank(), reason), "", {rank()}));
    }
    throw;
  }
}

}  // namespace kolo::elastic
