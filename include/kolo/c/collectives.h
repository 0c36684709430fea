// SPDX-License-Identifier: Apache-2.0
// Collective operations of one tensor: every rank of a process set calls them.
//
// All functions are thread-safe. A synchronous function returns when the operation is done, with
// its status; an asynchronous one gives a request at once (kolo/c/request.h), and then its status
// is that of the submission. Operations are matched across ranks by name, so ranks may submit named
// operations in any order. Operations without a name are matched by the order of their submission
// to the process set; only one thread at a time may have such operations pending in a set.
//
// The memory of tensors, and that which an asynchronous function writes later, must stay alive and
// otherwise unused until the operation is done. Empty tensors and scalars are allowed unless stated
// otherwise. `options` may be null, for the defaults.
//
// Every operation can fail with KOLO_NOT_INITIALIZED, KOLO_INVALID_ARGUMENT, KOLO_DUPLICATE_NAME,
// KOLO_MISMATCH, KOLO_PEER_LEFT, KOLO_STALLED, KOLO_SHUT_DOWN and KOLO_BACKEND_ERROR.
#ifndef KOLO_C_COLLECTIVES_H
#define KOLO_C_COLLECTIVES_H

#include "kolo/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Options of all collectives that do not reduce. Structs of options begin with their size. Start
/// from the macro of the defaults, then set members: zero is not the default of all, such as of the
/// factors.
///
///     kolo_collective_options options = KOLO_COLLECTIVE_OPTIONS;
///     options.name = "parameters";
typedef struct kolo_collective_options {
  size_t size;                    ///< sizeof(kolo_collective_options)
  const char* name;               ///< Matches the operation across ranks; null matches by order.
  kolo_process_set* process_set;  ///< Ranks that take part; null: the world.
} kolo_collective_options;
#define KOLO_COLLECTIVE_OPTIONS \
  { sizeof(kolo_collective_options), NULL, NULL }

/// Options of `kolo_allreduce`, `kolo_reducescatter` and their grouped forms.
typedef struct kolo_reduce_options {
  size_t size;                     ///< sizeof(kolo_reduce_options)
  const char* name;                ///< Matches the operation across ranks; null matches by order.
  kolo_process_set* process_set;   ///< Ranks that take part; null: the world.
  kolo_reduce_op op;               ///< Reducescatters take any except KOLO_ADASUM.
  kolo_compression compression;    ///< The type in which tensors are transferred.
  double prescale;                 ///< Factor for each rank's elements before the reduction.
  double postscale;                ///< Factor for the result.
  kolo_average_over average_over;  ///< Only for allreduces.
  int32_t fuse_exactly;  ///< Only for grouped allreduces. 1: no other tensors in its batches.
} kolo_reduce_options;
#define KOLO_REDUCE_OPTIONS                                                                 \
  {                                                                                         \
    sizeof(kolo_reduce_options), NULL, NULL, KOLO_AVERAGE, KOLO_COMPRESSION_NONE, 1.0, 1.0, \
        KOLO_OVER_ALL, 0                                                                    \
  }

/// Returns memory of `bytes` bytes for a result whose size depends on all ranks. Called once, on
/// any thread, with the number of rows from each of the `members` of the set, in their order. It
/// must not call Kolo, except to free handles: collectives fail with KOLO_INVALID_ARGUMENT. The
/// memory is yours, even if the operation fails afterwards; for GPU tensors it must be on the same
/// GPU. If it returns null for a result that is not empty, or throws, the session ends. `user` is
/// the program's pointer.
typedef void* (*kolo_allocator)(const int64_t* rows, size_t members, size_t bytes, void* user);

/// An allocator that takes the memory from `malloc`. `user` is a `void**`, which receives the
/// memory: set it to NULL before, and `free` it afterwards, also after an error. For tensors on the
/// CPU.
KOLO_C_EXPORT void* kolo_allocate(const int64_t* rows, size_t members, size_t bytes, void* user);

/// Reduces the ranks' tensors element by element, in place. Every rank gets the same bits. Shape,
/// dtype and options must be equal on all ranks.
KOLO_C_EXPORT kolo_status kolo_allreduce(const kolo_tensor* tensor,
                                         const kolo_reduce_options* options);
KOLO_C_EXPORT kolo_status kolo_allreduce_async(const kolo_tensor* tensor,
                                               const kolo_reduce_options* options,
                                               kolo_request** request);

/// Reduces out of place. `input` and `output` must have the same dtype, device and number of
/// elements, and must not overlap.
KOLO_C_EXPORT kolo_status kolo_allreduce_into(const kolo_tensor* input, const kolo_tensor* output,
                                              const kolo_reduce_options* options);
KOLO_C_EXPORT kolo_status kolo_allreduce_into_async(const kolo_tensor* input,
                                                    const kolo_tensor* output,
                                                    const kolo_reduce_options* options,
                                                    kolo_request** request);

/// The number of rows that member `index` of a set of `size` members gets in a reducescatter of
/// `rows` rows: the first members get one more than the others if `rows` is not a multiple of
/// `size`. -1 unless `size` is positive. `index` is from 0 to `size` - 1.
KOLO_C_EXPORT int64_t kolo_reducescatter_rows(int64_t rows, int index, int size);

/// Reduces the ranks' tensors and gives each rank its rows of the result (see
/// `kolo_reducescatter_rows`). Rows are slices along the first dimension. `output` receives this
/// rank's rows, and may point to them inside `input`. Shape, dtype and options must be equal on all
/// ranks. KOLO_INVALID_ARGUMENT for a scalar; KOLO_MISMATCH if a member of the set has joined.
KOLO_C_EXPORT kolo_status kolo_reducescatter(const kolo_tensor* input, const kolo_tensor* output,
                                             const kolo_reduce_options* options);
KOLO_C_EXPORT kolo_status kolo_reducescatter_async(const kolo_tensor* input,
                                                   const kolo_tensor* output,
                                                   const kolo_reduce_options* options,
                                                   kolo_request** request);

/// Gathers the tensors of all ranks on every rank, concatenated along the first dimension in the
/// order of the ranks. The first dimension may differ between ranks; the other dimensions and the
/// dtype may not. A scalar counts as one row, and a rank that has joined contributes none.
/// `allocate` returns memory for all rows; `tensor` may already be at this rank's place in that
/// memory. `rows`, unless null, has one element per member of the set and receives the members'
/// numbers of rows.
KOLO_C_EXPORT kolo_status kolo_allgather(const kolo_tensor* tensor, kolo_allocator allocate,
                                         void* user, int64_t* rows,
                                         const kolo_collective_options* options);
KOLO_C_EXPORT kolo_status kolo_allgather_async(const kolo_tensor* tensor, kolo_allocator allocate,
                                               void* user, int64_t* rows,
                                               const kolo_collective_options* options,
                                               kolo_request** request);

/// Copies `root`'s tensor to every rank. `root` is the world rank of a member of the set that has
/// not joined. Shape, dtype and root must be equal on all ranks.
KOLO_C_EXPORT kolo_status kolo_broadcast(const kolo_tensor* tensor, int root,
                                         const kolo_collective_options* options);
KOLO_C_EXPORT kolo_status kolo_broadcast_async(const kolo_tensor* tensor, int root,
                                               const kolo_collective_options* options,
                                               kolo_request** request);

/// Broadcasts out of place: every rank, the root included, receives the root's `input` in `output`.
/// The contents of `input` on other ranks are ignored.
KOLO_C_EXPORT kolo_status kolo_broadcast_into(const kolo_tensor* input, const kolo_tensor* output,
                                              int root, const kolo_collective_options* options);
KOLO_C_EXPORT kolo_status kolo_broadcast_into_async(const kolo_tensor* input,
                                                    const kolo_tensor* output, int root,
                                                    const kolo_collective_options* options,
                                                    kolo_request** request);

/// Sends consecutive rows of the tensor to the members of the set, `counts[i]` rows to the i-th,
/// and receives the rows that the members send to this rank, in their order. `counts` has `members`
/// elements, one per member; each may be zero, and their sum must be the tensor's number of rows.
/// With `counts` null and `members` 0, each member gets the same number of rows. `allocate` and
/// `rows` are those of `kolo_allgather`: the rows are those received from each member.
/// KOLO_INVALID_ARGUMENT for a scalar; KOLO_MISMATCH if a member of the set has joined.
KOLO_C_EXPORT kolo_status kolo_alltoall(const kolo_tensor* tensor, const int64_t* counts,
                                        size_t members, kolo_allocator allocate, void* user,
                                        int64_t* rows, const kolo_collective_options* options);
KOLO_C_EXPORT kolo_status kolo_alltoall_async(const kolo_tensor* tensor, const int64_t* counts,
                                              size_t members, kolo_allocator allocate, void* user,
                                              int64_t* rows, const kolo_collective_options* options,
                                              kolo_request** request);

/// Waits until every member of the set has called it.
KOLO_C_EXPORT kolo_status kolo_barrier(const kolo_collective_options* options);
KOLO_C_EXPORT kolo_status kolo_barrier_async(const kolo_collective_options* options,
                                             kolo_request** request);

/// Declares that this rank has no more data, and waits for every rank to join. Meanwhile, the other
/// ranks' operations complete without this rank: reductions combine the tensors of the others, and
/// an allgather returns no rows from this rank. Reducescatters, all-to-alls and broadcasts from
/// this rank fail with KOLO_MISMATCH. `*last_rank`, unless null, is set to the last rank to join,
/// the same on all ranks. Until the join completes, submitting an operation on this rank fails with
/// KOLO_INVALID_ARGUMENT. The asynchronous form needs `last_rank`, which must stay alive until the
/// request is done.
KOLO_C_EXPORT kolo_status kolo_join(int* last_rank);
KOLO_C_EXPORT kolo_status kolo_join_async(int* last_rank, kolo_request** request);

#ifdef __cplusplus
}
#endif

#endif
