#include "kolo/training/shared_failure.hpp"

#include <exception>
#include <string>
#include <vector>

#include "base/rank_set.hpp"
#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "training/agreement.hpp"

namespace kolo {

using namespace internal;
namespace {

// The message of a failure; "" on success.
std::string failure_to_share(const std::function<void()>& work) {
  try {
    return internal::failure_of(work);
  } catch (...) {
    return "an exception that does not derive from std::exception";
  }
}

// Sets aside the errors after which the set's collectives no longer work: this rank cannot share
// them, and does not need to, because the other ranks learn of the cause by themselves.
std::function<void()> with_fatal_errors_set_aside(const std::function<void()>& work,
                                                  std::exception_ptr& fatal) {
  return [&work, &fatal] {
    const auto keep = [&] { fatal = std::current_exception(); };
    try {
      work();
    } catch (const PeerLeft&) {
      keep();
    } catch (const Stalled&) {
      keep();
    } catch (const ShutDown&) {
      keep();
    } catch (const BackendError&) {
      keep();
    } catch (const NotInitialized&) {
      keep();
    }
  };
}

std::string failure_here(const std::function<void()>& work) {
  std::exception_ptr fatal;
  std::string failure = failure_to_share(with_fatal_errors_set_aside(work, fatal));
  if (fatal) std::rethrow_exception(fatal);
  return failure;
}

}  // namespace

void on_every_rank(const std::function<void()>& work, const ProcessSet& set) {
  std::string failure = failure_here(work);
  const std::vector<int> failed = internal::ranks_that(!failure.empty(), "kolo.on_every_rank", set);
  if (failed.empty()) return;
  // All ranks throw the message of the same rank, so that logs agree.
  broadcast(failure, failed.front(), {.name = "kolo.on_every_rank.failure", .process_set = set});
  throw Error(failure + " (on rank " + to_string(RankSet::of(failed)) + ")", {}, failed);
}

void on_one_rank(int root, const std::function<void()>& work, const ProcessSet& set) {
  internal::require_root("on_one_rank", root, set);
  // The broadcast is also what the other ranks wait in while the root works.
  std::string failure;
  if (rank() == root) failure = failure_here(work);
  broadcast(failure, root, {.name = "kolo.on_one_rank", .process_set = set});
  if (!failure.empty()) {
    throw Error(failure + " (on rank " + std::to_string(root) + ")", {}, {root});
  }
}

}  // namespace kolo
