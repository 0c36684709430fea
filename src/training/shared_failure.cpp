// SPDX-License-Identifier: Apache-2.0
// Implements on_every_rank and on_one_rank of kolo/error.hpp.
#include <string>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "training/agreement.hpp"

namespace kolo {

using namespace internal;

void on_every_rank(const std::function<void()>& work, const ProcessSet& set) {
  share_failure("kolo.on_every_rank", {}, work, set);
}

void on_one_rank(int root, const std::function<void()>& work, const ProcessSet& set) {
  require_root("on_one_rank", root, set);
  // While the root works, the other ranks wait in the broadcast.
  std::string failure;
  if (rank() == root) failure = failure_of(work);
  broadcast(failure, root, {.name = "kolo.on_one_rank", .process_set = set});
  if (!failure.empty()) {
    throw Error(failure + " (on rank " + std::to_string(root) + ")", {}, {root});
  }
}

}  // namespace kolo
