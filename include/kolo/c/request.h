// SPDX-License-Identifier: Apache-2.0
// The results of asynchronous operations.
//
// Each asynchronous call gives a request, which you free. Use a request from one thread at a time.
#ifndef KOLO_C_REQUEST_H
#define KOLO_C_REQUEST_H

#include "kolo/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Blocks until the operation is done, and returns its status; if the operation failed, every call
/// returns that status. Allocators of pending operations may run on this thread meanwhile. The
/// request remains; free it.
///
/// An operation on GPU tensors is done once it is queued on the GPU; the current stream of this
/// thread then waits there for the results. Before the host reads them, call
/// `kolo_request_synchronize`.
KOLO_C_EXPORT kolo_status kolo_request_wait(kolo_request* request);

/// As `kolo_request_wait`, but for at most `seconds`. Sets `*done` to 1 if the operation is done,
/// else to 0.
KOLO_C_EXPORT kolo_status kolo_request_wait_for(kolo_request* request, double seconds, int* done);

/// Blocks like `kolo_request_wait`, and then until the GPU has computed the results. Also returns
/// an error that occurred on the GPU.
KOLO_C_EXPORT kolo_status kolo_request_synchronize(kolo_request* request);

/// Sets `*ready` to 1 if `kolo_request_wait` would not block, else to 0. Does not return the
/// operation's error.
KOLO_C_EXPORT kolo_status kolo_request_ready(kolo_request* request, int* ready);

/// Sets `*finished` to 1 if `kolo_request_synchronize` would not block: the operation no longer
/// uses its memory, on the GPU either.
KOLO_C_EXPORT kolo_status kolo_request_finished(kolo_request* request, int* finished);

/// Blocks until at least one of `count` requests of one session is ready, and sets `*index`, unless
/// null, to the first that is. Does not return an operation's error. KOLO_INVALID_ARGUMENT without
/// requests.
KOLO_C_EXPORT kolo_status kolo_request_wait_any(kolo_request* const* requests, size_t count,
                                                size_t* index);

/// Waits until the operation no longer uses its memory, ignores its error, and frees the request.
/// Inside an allocator it does not wait: the operation continues, so keep its memory alive. No
/// effect for null.
KOLO_C_EXPORT kolo_status kolo_request_free(kolo_request* request);

#ifdef __cplusplus
}
#endif

#endif
