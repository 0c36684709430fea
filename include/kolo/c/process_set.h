// SPDX-License-Identifier: Apache-2.0
// Process sets: groups of ranks for collectives.
#ifndef KOLO_C_PROCESS_SET_H
#define KOLO_C_PROCESS_SET_H

#include "kolo/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Creates a set of `count` world ranks, in any order, and a handle of it, which you free.
/// Collective in the world: every rank, member or not, calls it with the same ranks. If a set of
/// these ranks exists, you get another handle of it. On one rank, only one thread at a time may add
/// or remove a set. KOLO_INVALID_ARGUMENT for an empty list, a repeated rank, or a rank outside the
/// world (nothing was submitted); KOLO_MISMATCH if the lists differ between ranks; and the errors
/// of collectives.
KOLO_C_EXPORT kolo_status kolo_process_set_add(const int* ranks, size_t count,
                                               kolo_process_set** set);

/// Removes a set; collective in the world. Its pending operations fail with KOLO_SHUT_DOWN, later
/// ones with KOLO_INVALID_ARGUMENT. The handle remains; free it. KOLO_INVALID_ARGUMENT for the
/// world and for a set that was already removed, and the errors of collectives.
KOLO_C_EXPORT kolo_status kolo_process_set_remove(kolo_process_set* set);

/// Frees a handle. Not collective: the set itself lasts until it is removed or the session ends.
/// No effect for null.
KOLO_C_EXPORT kolo_status kolo_process_set_free(kolo_process_set* set);

/// An identifier of the set, the same on all ranks; 0 for the world. Here and below, a null `set`
/// means the world, which gives KOLO_NOT_INITIALIZED outside a session.
KOLO_C_EXPORT kolo_status kolo_process_set_id(const kolo_process_set* set, int64_t* id);
/// The number of members.
KOLO_C_EXPORT kolo_status kolo_process_set_size(const kolo_process_set* set, int* size);
/// The index of this rank among the members; -1 if this rank is not a member.
KOLO_C_EXPORT kolo_status kolo_process_set_rank(const kolo_process_set* set, int* rank);
/// Writes the members as world ranks, in ascending order, into `ranks`, which has room for
/// `capacity` of them. KOLO_INVALID_ARGUMENT if the set has more members.
KOLO_C_EXPORT kolo_status kolo_process_set_ranks(const kolo_process_set* set, int* ranks,
                                                 size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
