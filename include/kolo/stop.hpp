// SPDX-License-Identifier: Apache-2.0
// Stopping in good order: all ranks leave the training loop after the same step, for example
// because a scheduler is about to end the job.
#pragma once

#include "kolo/export.hpp"

namespace kolo {

/// True if a rank is to stop. Collective over all ranks: call it once per step, at the same place
/// in the loop. All ranks get the same answer in the same call.
///
///     for (; step < steps; ++step) {
///       ...
///       optimizer.step();
///       const bool stops = kolo::stop_requested();
///       if (stops || step % 1000 == 0) checkpoints.save(step, parts);
///       if (stops) break;
///     }
///
/// A rank is to stop once it has called `request_stop`, or has received one of the signals that the
/// setting `stop_signals` names: SIGTERM and SIGUSR1 by default. The first call in the process
/// installs handlers for them, and from then on these signals no longer end the process, except a
/// forked child, and a rank whose launcher has died. A handler that the program has installed
/// before is called too; an ignored signal stays ignored.
///
/// The ranks agree in the background, while they compute the next step: a call returns what they
/// agreed on since the call before, so the answer comes one call later, and a call rarely waits.
/// The first call of a session, and the first one after all ranks have joined, agrees at once.
/// Once a call has returned true, all later calls of the process do.
///
/// Call it from one thread at a time, in the same order on all ranks as `join`. Throws
/// NotInitialized without a session, and the errors of an allreduce.
[[nodiscard]] KOLO_EXPORT bool stop_requested();

/// Makes `stop_requested` return true on all ranks, as a signal to this rank does. Not collective;
/// needs no session. Thread-safe and async-signal-safe.
KOLO_EXPORT void request_stop() noexcept;

}  // namespace kolo
