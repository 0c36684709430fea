// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/shared_failure.hpp"

#include <string>
#include <vector>

#include "base/failure.hpp"
#include "base/rank_set.hpp"
#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "training/agreement.hpp"

namespace kolo {

using namespace internal;
namespace {

// The message of a failure; "" on success. After the errors that are thrown again the set's
// collectives no longer work: this rank cannot share them, and does not need to, because the other
// ranks learn of the cause by themselves.
std::string failure_here(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const PeerLeft&) {
    throw;
  } catch (const Stalled&) {
    throw;
  } catch (const ShutDown&) {
    throw;
  } catch (const BackendError&) {
    throw;
  } catch (const NotInitialized&) {
    throw;
  } catch (...) {
    return message_of_current_exception();
  }
}

}  // namespace

void on_every_rank(const std::function<void()>& work, const ProcessSet& set) {
  std::string failure = failure_here(work);
  const std::vector<int> failed = ranks_that(!failure.empty(), "kolo.on_every_rank", set);
  if (failed.empty()) return;
  // All ranks throw the message of the same rank, so that logs agree.
  broadcast(failure, failed.front(), {.name = "kolo.on_every_rank.failure", .process_set = set});
  throw Error(failure + (failed.size() == 1 ? " (on rank " : " (on ranks ") +
                  to_string(RankSet::of(failed)) + ")",
              {}, failed);
}

void on_one_rank(int root, const std::function<void()>& work, const ProcessSet& set) {
  require_root("on_one_rank", root, set);
  // While the root works, the other ranks wait in the broadcast.
  std::string failure;
  if (rank() == root) failure = failure_here(work);
  broadcast(failure, root, {.name = "kolo.on_one_rank", .process_set = set});
  if (!failure.empty()) {
    throw Error(failure + " (on rank " + std::to_string(root) + ")", {}, {root});
  }
}

}  // namespace kolo
