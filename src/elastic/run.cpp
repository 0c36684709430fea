// SPDX-License-Identifier: Apache-2.0
// One session after another.
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

// What breaks because another rank is lost may be noticed before the loss itself.
constexpr std::chrono::seconds patience{1};

std::atomic<bool> running{false};
std::atomic<bool> has_run{false};

/// A process that is started later would be in its first call while the others are in their second.
void refuse_second_run() {
  if (has_run.exchange(true) && session::is_elastic_job())
    throw InvalidArgument(
        "kolo::elastic::run was called before, and an elastic job calls it once: put all of the "
        "training into one function, and record its progress in a part of the state");
}

/// True if the current session has lost ranks, as far as this process knows, or learns soon.
bool session_is_over() {
  const auto until = steady_clock::now() + patience;
  while (true) {
    const auto engine = session::find_engine();
    if (!engine || engine->has_missed_ranks() || session::session_is_interrupted()) return true;
    if (steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// The session is over on all ranks.
void abandon(const Error& lost) {
  log(LogLevel::warning, std::string("the session is over: ") + lost.what());
  session::abandon_session(lost);
}

/// These functions are called while an exception is handled. They rethrow it if no session follows.

/// Ranks are lost, or do not respond.
void go_on_without_lost(const Error& error, bool accuses) {
  if (!session::is_elastic_job()) throw;
  if (!session_is_over())
    throw InvalidArgument(fmt::format(
        "an error from an earlier session was rethrown: {}. Futures end with their session: create "
        "them in the function that kolo::elastic::run calls, and do not keep them after it returns",
        error.what()));
  const bool is_own = std::ranges::find(error.ranks(), rank()) != error.ranks().end();
  if (accuses && !is_own) session::accuse_stalled(error.ranks(), error.what());
  abandon(error);
}

/// An error that all ranks get, and others have caused: these leave `run` by exceptions of their
/// own, unless they catch them.
void go_on_without_failed(const Error& error, bool accuses) {
  const bool is_own =
      error.ranks().empty() || std::ranges::find(error.ranks(), rank()) != error.ranks().end();
  if (is_own || !session::is_elastic_job()) throw;
  if (accuses) session::accuse(error.ranks(), error.what());
  abandon(error);
}

}  // namespace

bool is_elastic() noexcept { return session::is_elastic_job(); }

struct State::Session {
  /// False if another session is to follow.
  static bool begin(State& state) {
    try {
      state.sync();
      session::declare_begun();
      return true;
    } catch (const Mismatch& error) {
      // Of ranks with other parts.
      go_on_without_failed(error, /*accuses=*/true);
      return false;
    }
  }

  /// A rank that misses the end of the others finds nothing left to do in the last commit.
  static void end(State& state) {
    Data& data = *state.data_;
    static_cast<void>(data.agree(Data::Call::end_of_training));
    data.copy(data.commits + 1);
    static_cast<void>(data.agree(Data::Call::end_of_training));
  }

  /// True if the training is done, false if another session is to follow.
  static bool train(State& state, const std::function<void()>& train) {
    // While it runs, the state takes no parts: they would be in no commit.
    state.data_->runs = true;
    const Finally stop([&] { state.data_->runs = false; });
    try {
      if (!begin(state)) return false;
      for (const auto& reset : state.data_->resets) reset();
      train();
      end(state);
      session::declare_complete();
      return true;
    } catch (const MembershipChanged&) {
      session::end_session(true, "");
    } catch (const PeerLeft& error) {
      go_on_without_lost(error, /*accuses=*/false);
    } catch (const Stalled& error) {
      go_on_without_lost(error, /*accuses=*/true);
    } catch (const BackendError& error) {
      if (!session::is_elastic_job() || !is_interrupted_soon()) throw;
      abandon(error);
    } catch (const BackwardFailed& error) {
      go_on_without_failed(error, /*accuses=*/false);
    } catch (const HookFailed& error) {
      go_on_without_failed(error, /*accuses=*/false);
    }
    return false;
  }

 private:
  /// The server tells of a loss that this rank's own means have met first.
  static bool is_interrupted_soon() {
    const auto until = steady_clock::now() + patience;
    while (!session::session_is_interrupted()) {
      if (steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
};

void run(State& state, const std::function<void()>& train) {
  if (running.exchange(true))
    throw InvalidArgument("kolo::elastic::run is running already: it cannot be nested");
  const Finally end([] { running = false; });
  static_cast<void>(session::current_engine("kolo::elastic::run"));
  refuse_second_run();
  session::allow_collectives();
  try {
    while (!State::Session::train(state, train)) {
      session::offer_commit(state.commits());
      session::restart_session();
    }
  } catch (const ShutDown&) {
    throw;  // the job is over, or another thread ends this process: no failure of this one
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
