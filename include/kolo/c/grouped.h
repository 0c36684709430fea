// SPDX-License-Identifier: Apache-2.0
// Collective operations of several tensors: each is one operation, which succeeds as a whole or not
// at all. The rules of kolo/c/collectives.h hold. A group has at least one tensor.
#ifndef KOLO_C_GROUPED_H
#define KOLO_C_GROUPED_H

#include "kolo/c/collectives.h"
#include "kolo/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Reduces `count` tensors in place, in one batch. Their dtypes may differ, but their memory must
/// not overlap. KOLO_ADASUM treats each tensor separately.
KOLO_C_EXPORT kolo_status kolo_grouped_allreduce(const kolo_tensor* tensors, size_t count,
                                                 const kolo_reduce_options* options);
KOLO_C_EXPORT kolo_status kolo_grouped_allreduce_async(const kolo_tensor* tensors, size_t count,
                                                       const kolo_reduce_options* options,
                                                       kolo_request** request);

/// Reduces and scatters `count` tensors. `outputs[i]` receives this rank's rows of `inputs[i]`. It
/// may be these rows of `inputs[i]`, and must not overlap any other input or output.
KOLO_C_EXPORT kolo_status kolo_grouped_reducescatter(const kolo_tensor* inputs,
                                                     const kolo_tensor* outputs, size_t count,
                                                     const kolo_reduce_options* options);
KOLO_C_EXPORT kolo_status kolo_grouped_reducescatter_async(const kolo_tensor* inputs,
                                                           const kolo_tensor* outputs, size_t count,
                                                           const kolo_reduce_options* options,
                                                           kolo_request** request);

/// Gathers `count` tensors. `allocate` is called once for each, with `users[i]`, and returns memory
/// for the rows of `tensors[i]`; with `users` null, it gets null. `rows`, unless null, has one
/// element per tensor and member of the set, and receives the members' numbers of rows: those of
/// the i-th tensor begin at `rows[i * members]`.
KOLO_C_EXPORT kolo_status kolo_grouped_allgather(const kolo_tensor* tensors, size_t count,
                                                 kolo_allocator allocate, void* const* users,
                                                 int64_t* rows,
                                                 const kolo_collective_options* options);
KOLO_C_EXPORT kolo_status kolo_grouped_allgather_async(const kolo_tensor* tensors, size_t count,
                                                       kolo_allocator allocate, void* const* users,
                                                       int64_t* rows,
                                                       const kolo_collective_options* options,
                                                       kolo_request** request);

#ifdef __cplusplus
}
#endif

#endif
