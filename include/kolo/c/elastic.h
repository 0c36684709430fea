// SPDX-License-Identifier: Apache-2.0
// Elastic training: ranks may be lost or join while a program trains.
//
//     static kolo_status train(void* user) {
//       struct training* training = user;
//       while (training->step < steps) {
//         kolo_status status = kolo_optimizer_begin_step(training->optimizer);
//         if (status != KOLO_OK) return status;
//         ...                                     // the rest of the step
//         status = kolo_elastic_commit(training->state);
//         if (status != KOLO_OK) return status;
//       }
//       return KOLO_OK;
//     }
//     ...
//     kolo_elastic_create(&state);
//     kolo_elastic_add_tensors(state, "model", parameters, count);
//     kolo_elastic_add_bytes(state, "step", &training.step, sizeof training.step);
//     kolo_elastic_add_optimizer(state, "optimizer", training.optimizer);
//     kolo_elastic_run(state, train, &training);
//
// The job needs `kolorun --min-np` or `--max-np`; docs/elastic.md explains elastic jobs. A state is
// used from one thread at a time.
#ifndef KOLO_C_ELASTIC_H
#define KOLO_C_ELASTIC_H

#include "kolo/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The parts of a training run, and their last commit, in memory. A commit is a copy of all parts;
/// each rank has one. If ranks are lost, the others continue from the newest commit.
typedef struct kolo_elastic_state kolo_elastic_state;

/// A function of the program: the training, or what follows a reset. `user` is the program's
/// pointer. Returns KOLO_OK, or the status of its call that has failed, which must be the last one
/// that failed on this thread; any other status means a failure of the program.
typedef kolo_status (*kolo_elastic_function)(void* user);

/// Gives a state without parts, which you free. Needs no session.
KOLO_C_EXPORT kolo_status kolo_elastic_create(kolo_elastic_state** state);

/// Frees a state. No effect for null.
KOLO_C_EXPORT kolo_status kolo_elastic_free(kolo_elastic_state* state);

/// Adds a part that is equal on all ranks: tensors on CPUs, which stay in place until the state is
/// freed. Add the same parts under the same names in the same order on all ranks, before
/// `kolo_elastic_run`. KOLO_INVALID_ARGUMENT for an empty or repeated name, and while the training
/// runs.
KOLO_C_EXPORT kolo_status kolo_elastic_add_tensors(kolo_elastic_state* state, const char* name,
                                                   const kolo_named_tensor* tensors, size_t count);
/// The same, for a variable or a struct without pointers, of `bytes` bytes.
KOLO_C_EXPORT kolo_status kolo_elastic_add_bytes(kolo_elastic_state* state, const char* name,
                                                 void* memory, size_t bytes);
/// The same, for an optimizer, which the state keeps alive: each session begins with
/// `kolo_optimizer_rejoin`. Add the memory that it updates as parts of their own.
KOLO_C_EXPORT kolo_status kolo_elastic_add_optimizer(kolo_elastic_state* state, const char* name,
                                                     kolo_optimizer* optimizer);

/// Writes an object to `to`, which has room for `capacity` bytes, and returns the number of bytes
/// that the object needs. The first call has no room and asks for that number only; the second has
/// room for as many, and must return the same. SIZE_MAX: the object cannot be saved. It must not
/// call functions of the state, nor `kolo_shutdown`: these give KOLO_INVALID_ARGUMENT.
typedef size_t (*kolo_elastic_save)(void* to, size_t capacity, void* user);
/// Sets an object to the bytes that `kolo_elastic_save` has written, possibly in another process.
/// Returns like a `kolo_elastic_function`. The same calls are refused within it.
typedef kolo_status (*kolo_elastic_load)(const void* bytes, size_t count, void* user);

/// Adds an object of the program that is equal on all ranks, and whose size may change.
KOLO_C_EXPORT kolo_status kolo_elastic_add_object(kolo_elastic_state* state, const char* name,
                                                  kolo_elastic_save save, kolo_elastic_load load,
                                                  void* user);

/// Registers a function that runs on all ranks before each call of the training, including the
/// first, after all parts are loaded: it sets values that depend on the number of ranks. It may be
/// collective.
KOLO_C_EXPORT kolo_status kolo_elastic_on_reset(kolo_elastic_state* state,
                                                kolo_elastic_function call, void* user);

/// Commits all parts. Collective in the world; call it between steps, while no operations are
/// pending. KOLO_MEMBERSHIP_CHANGED, after the copy, if ranks are to join or leave: return that
/// status from the training. KOLO_MISMATCH on all ranks if some of them call a different function.
/// Fails like `kolo_allreduce`.
KOLO_C_EXPORT kolo_status kolo_elastic_commit(kolo_elastic_state* state);
/// As `kolo_elastic_commit`, but copies only if ranks are to join or leave; in that case no step is
/// lost.
KOLO_C_EXPORT kolo_status kolo_elastic_check_membership(kolo_elastic_state* state);

/// Sets the parts to this rank's last commit. Not collective. KOLO_INVALID_ARGUMENT if there is
/// none.
KOLO_C_EXPORT kolo_status kolo_elastic_restore(kolo_elastic_state* state);
/// Sets the parts of all ranks to the newest commit. If no rank has one, rank 0's parts become the
/// first commit. Collective; `kolo_elastic_run` calls it. KOLO_MISMATCH on all ranks if they have
/// different parts, tensors or bytes of different sizes, or call a different function.
KOLO_C_EXPORT kolo_status kolo_elastic_sync(kolo_elastic_state* state);

/// The number of commits so far, including the first one, which `kolo_elastic_sync` makes; 0: none.
KOLO_C_EXPORT kolo_status kolo_elastic_commits(kolo_elastic_state* state, uint64_t* commits);

/// Calls `train` in one session after another until it returns KOLO_OK on all ranks. Call
/// `kolo_init` first. Each session begins with `kolo_elastic_sync`, so the training continues from
/// the newest commit.
///
/// A session ends early if a rank is lost or does not respond, or if a commit finds that ranks join
/// or leave: then `train` gets KOLO_PEER_LEFT, KOLO_STALLED or KOLO_MEMBERSHIP_CHANGED from a call,
/// and must return that status. The remaining ranks begin the next session in the same process. Any
/// other status that `train` returns is the result of this call, and the other ranks treat this
/// rank as lost.
///
/// Collectives belong in `train`: before this call they give KOLO_INVALID_ARGUMENT in an elastic
/// job. Optimizers may be created before it. After it the number of ranks is fixed. Without an
/// elastic job, KOLO_PEER_LEFT is the result if a rank is lost. KOLO_SHUT_DOWN if the job is over
/// because too few ranks are left. KOLO_INVALID_ARGUMENT if called within itself, or a second time
/// in an elastic job; KOLO_NOT_INITIALIZED without a session.
KOLO_C_EXPORT kolo_status kolo_elastic_run(kolo_elastic_state* state, kolo_elastic_function train,
                                           void* user);

/// 1 if the job continues when ranks are lost, else 0. 0 before the first session of the process.
KOLO_C_EXPORT int kolo_is_elastic(void);

#ifdef __cplusplus
}
#endif

#endif
