// Failures that concern all ranks: a rank that fails alone would leave the others waiting for it.
#pragma once

#include <functional>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// Runs `work` on every rank of the set. If it throws on any, every rank throws Error with the
/// message of the first that failed; `ranks()` are all that did. Collective. An error that ends the
/// session or the set (PeerLeft, Stalled, ShutDown, BackendError, NotInitialized) is passed on as
/// it is: the other ranks learn of it themselves.
KOLO_EXPORT void on_every_rank(const std::function<void()>& work, const ProcessSet& set = {});

/// Runs `work` on the rank `root` of the world, a member of the set, while the others wait. If it
/// throws, every rank throws Error with its message. `work` must not call collectives of the set.
/// Collective. Throws InvalidArgument for a root outside the set.
KOLO_EXPORT void on_one_rank(int root, const std::function<void()>& work,
                             const ProcessSet& set = {});

}  // namespace kolo
