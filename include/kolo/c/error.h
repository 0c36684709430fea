// SPDX-License-Identifier: Apache-2.0
// The last error of the calling thread.
#ifndef KOLO_C_ERROR_H
#define KOLO_C_ERROR_H

#include "kolo/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The status of the last call of this thread that failed; KOLO_OK if none has. A call that
/// succeeds changes nothing. No function of this header can fail or needs a session. An error of an
/// asynchronous operation belongs to the thread that waits for it.
KOLO_C_EXPORT kolo_status kolo_last_error(void);

/// The message of that error: what was asked, what was found, the tensor and the ranks, and what to
/// do. It is the message of the exception that C++ would throw, and empty if there was no error.
/// The pointer, and those of the next two functions, are valid until the next call of this thread
/// that fails, or its end.
KOLO_C_EXPORT const char* kolo_last_error_message(void);

/// The name of the operation or tensor that failed, as the program named it; "" if there is none,
/// and for operations that Kolo submits by itself, whose names begin with "kolo.".
KOLO_C_EXPORT const char* kolo_last_error_tensor(void);

/// Sets `*ranks` to the world ranks concerned, in ascending order, and returns their number, which
/// may be 0. `ranks` may be null.
KOLO_C_EXPORT size_t kolo_last_error_ranks(const int** ranks);

/// The name of a status, such as "KOLO_MISMATCH"; "unknown status" for any other value. The string
/// lasts forever.
KOLO_C_EXPORT const char* kolo_status_name(kolo_status status);

#ifdef __cplusplus
}
#endif

#endif
