// SPDX-License-Identifier: Apache-2.0
// Sessions: start, end, settings, this rank's place among the ranks and hosts, and stopping all
// ranks after the same step.
#ifndef KOLO_C_SESSION_H
#define KOLO_C_SESSION_H

#include "kolo/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// One setting by its name in docs/settings.md, such as {"stall_shutdown", "120"}. The value has
/// the format of the environment variable, here KOLO_STALL_SHUTDOWN, and overrides it.
typedef struct kolo_setting {
  const char* name;
  const char* value;
} kolo_setting;

/// Starts the session; collective over all ranks. A process has at most one session at a time.
/// Initializes MPI on this thread unless the program has done so, or the ranks were started without
/// MPI. `argv` is for MPI and may be null, with `argc` 0. `settings` may be null if `count` is 0.
/// Settings that are not given are read from the environment.
///
/// KOLO_INVALID_ARGUMENT: a setting is invalid or unknown on any rank (all ranks get the error,
/// which names the ranks with that setting); there is a session already; MPI's thread support is
/// insufficient; or neither MPI nor Kolo supports the launcher. KOLO_PEER_LEFT: under kolorun, a
/// rank is lost; you may then call this function again.
KOLO_C_EXPORT kolo_status kolo_init(int argc, char** argv, const kolo_setting* settings,
                                    size_t count);

/// Ends the session: this rank leaves, and its pending operations that not all ranks have submitted
/// fail with KOLO_SHUT_DOWN. Returns when all ranks have left. No effect without a session. Handles
/// of the session remain valid and should be freed; operations with them fail.
KOLO_C_EXPORT kolo_status kolo_shutdown(void);

/// 1 during a session, else 0.
KOLO_C_EXPORT int kolo_initialized(void);

/// This rank, from 0, and the number of ranks. All functions from here to `kolo_cpu_operations`
/// return KOLO_NOT_INITIALIZED outside a session.
KOLO_C_EXPORT kolo_status kolo_rank(int* rank);
KOLO_C_EXPORT kolo_status kolo_size(int* size);
/// This rank's index among the ranks of its host, and their number.
KOLO_C_EXPORT kolo_status kolo_local_rank(int* rank);
KOLO_C_EXPORT kolo_status kolo_local_size(int* size);
/// This host's index among the hosts that have a rank with this `local_rank`, and their number.
KOLO_C_EXPORT kolo_status kolo_cross_rank(int* rank);
KOLO_C_EXPORT kolo_status kolo_cross_size(int* size);
/// Sets `*homogeneous` to 1 if every host has the same number of ranks, else to 0.
KOLO_C_EXPORT kolo_status kolo_homogeneous(int* homogeneous);

/// Writes the backend for tensors on CPUs, such as "shm", as a string into `text`, which has room
/// for `capacity` bytes; a longer string is truncated, and still ends with a zero byte. `*length`,
/// unless null, is set to the length of the whole string without its zero byte. With `capacity` 0,
/// `text` may be null.
KOLO_C_EXPORT kolo_status kolo_cpu_operations(char* text, size_t capacity, size_t* length);

/// Sets `*stops` to 1 once any rank was asked to stop, by `kolo_request_stop` or by a signal of the
/// setting `stop_signals`, else to 0. Collective over all ranks: call it once per step, at the same
/// place in the loop. All ranks get the same answer in the same call. The first call installs the
/// signal handlers. See docs/training.md. Call it from one thread at a time. Fails like
/// `kolo_allreduce`.
KOLO_C_EXPORT kolo_status kolo_stop_requested(int* stops);

/// Makes `kolo_stop_requested` answer 1 on all ranks. Not collective; needs no session. Never
/// fails; async-signal-safe.
KOLO_C_EXPORT void kolo_request_stop(void);

/// The version of the library, such as "0.1.0". The string lasts forever.
KOLO_C_EXPORT const char* kolo_version(void);

#ifdef __cplusplus
}
#endif

#endif
