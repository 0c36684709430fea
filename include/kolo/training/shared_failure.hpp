// SPDX-License-Identifier: Apache-2.0
// Shares failures among ranks. Without these functions, a rank that fails alone leaves the others
// waiting.
#pragma once

#include <functional>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// Runs `work` on every rank of the set. If `work` throws on any rank, every rank throws Error with
/// the message of the lowest failed rank; `ranks()` lists all failed ranks. Collective. Errors that
/// end the session or the set (PeerLeft, Stalled, ShutDown, BackendError, NotInitialized) are
/// rethrown unchanged, because the other ranks get their own errors.
KOLO_EXPORT void on_every_rank(const std::function<void()>& work, const ProcessSet& set = {});

/// Runs `work` on world rank `root`, a member of the set, while the others wait. If `work` throws,
/// every rank throws Error with the same message. `work` must not call collectives of the set.
/// Collective. Throws InvalidArgument for a root outside the set.
KOLO_EXPORT void on_one_rank(int root, const std::function<void()>& work,
                             const ProcessSet& set = {});

}  // namespace kolo
