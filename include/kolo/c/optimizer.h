// SPDX-License-Identifier: Apache-2.0
// Optimizers for named arrays: the ranks' gradients are reduced before each step.
//
//     kolo_optimizer* optimizer;
//     kolo_optimizer_create(gradients, count, NULL, 0, NULL, &optimizer);
//     ...                                          // compute the gradients
//     kolo_optimizer_ready(optimizer, "weight");   // optional: starts its reduction early
//     kolo_optimizer_begin_step(optimizer);        // reduces the others, and waits for all
//     ...                                          // update the parameters
//     kolo_optimizer_end_step(optimizer);
//
// The functions are those of kolo::DistributedOptimizer and kolo::ShardedOptimizer, and a job may
// have ranks of both languages. An optimizer is used from one thread at a time. Functions that are
// collective are called by all ranks of the optimizer's process set, in the same order; they can
// fail like `kolo_allreduce`. After an error the step is over on all ranks.
//
// A rank that runs out of data calls `kolo_join` after its last step; the other ranks' averages are
// then still divided by the number of all ranks. If a rank began a step before its `kolo_join` and
// did not reduce it, that step is dropped; if some of its gradients were submitted, the next call
// that reduces fails once with KOLO_INVALID_ARGUMENT.
#ifndef KOLO_C_OPTIMIZER_H
#define KOLO_C_OPTIMIZER_H

#include "kolo/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// How the gradients of several backward passes are combined.
typedef enum kolo_accumulation {
  KOLO_ACCUMULATE_SUM = 0,
  KOLO_ACCUMULATE_MEAN = 1,
  KOLO_ACCUMULATION_MAX_ = 0x7fffffff,
} kolo_accumulation;

/// The data that the optimizer splits among the ranks. A rank that updates a shard of each
/// parameter keeps state, such as Adam's moments, only for its shards. Parameters stay full on all
/// ranks, and gradients too with KOLO_SHARD_STATE.
typedef enum kolo_sharding {
  KOLO_SHARD_NOTHING = 0,
  KOLO_SHARD_STATE = 1,                ///< Optimizer state (ZeRO-1).
  KOLO_SHARD_STATE_AND_GRADIENTS = 2,  ///< Optimizer state and reduced gradients (ZeRO-2).
  KOLO_SHARDING_MAX_ = 0x7fffffff,
} kolo_sharding;

/// Names of gradients that are reduced as one operation.
typedef struct kolo_gradient_group {
  const char* const* names;
  size_t count;
} kolo_gradient_group;

/// Options of `kolo_optimizer_create`, equal on all ranks of the set.
typedef struct kolo_optimizer_options {
  size_t size;                       ///< sizeof(kolo_optimizer_options)
  kolo_process_set* process_set;     ///< Ranks that take part; null: the world. Others step with
                                     ///< their own gradients.
  kolo_reduce_op op;                 ///< KOLO_AVERAGE, KOLO_SUM or KOLO_ADASUM.
  kolo_compression compression;      ///< The type in which gradients are transferred.
  kolo_accumulation accumulation;    ///< Of the passes of a step.
  int32_t backward_passes_per_step;  ///< At least 1. Gradients are reduced during the last pass.
  /// Splits the division of an average: gradients are divided by this factor before the sum, and by
  /// the number of ranks divided by this factor after it. Positive and finite; 1 for other
  /// operators.
  double gradient_predivide_factor;
  const kolo_gradient_group* groups;  ///< `group_count` groups. May be null.
  size_t group_count;
  int32_t num_groups;      ///< Number of groups of consecutive gradients, instead of `groups`; 0:
                           ///< no groups.
  kolo_sharding sharding;  ///< Needs parameters, and an update that treats each element by itself.
  /// 1: the first pass that reduces compares the parameters of the ranks, and so does the first one
  /// after a rejoin. If they differ, because `kolo_broadcast_parameters` was not called or a rank
  /// has changed its own, the call fails with KOLO_MISMATCH on every rank, and its message names
  /// the first parameter that differs and the ranks. 0: not then. Without parameters, nothing is
  /// compared.
  int32_t compare_at_start;
  int32_t compare_every;              ///< Also compare in every n-th pass; 0: in no further pass.
  const char* const* compare_except;  ///< `except_count` names of parameters that may differ.
  size_t except_count;
} kolo_optimizer_options;
#define KOLO_OPTIMIZER_OPTIONS                                                     \
  {                                                                                \
    sizeof(kolo_optimizer_options), NULL, KOLO_AVERAGE, KOLO_COMPRESSION_NONE,     \
        KOLO_ACCUMULATE_SUM, 1, 1.0, NULL, 0, 0, KOLO_SHARD_NOTHING, 1, 0, NULL, 0 \
  }

/// Gives an optimizer of `count` gradients, which you free. Collective: all ranks create their
/// optimizers in the same order. The memory of gradients and parameters must stay in place until
/// the optimizer is freed; gradients are reduced in place. `parameters`, which may be null with
/// `parameter_count` 0, are for the comparison of the ranks. With sharding they are needed, and
/// have the names, dtypes and numbers of elements of the gradients, in the same order.
///
/// KOLO_MISMATCH on every rank if names, shapes, dtypes or options differ; KOLO_INVALID_ARGUMENT
/// for invalid options, a repeated or unknown name, and memory that overlaps.
KOLO_C_EXPORT kolo_status kolo_optimizer_create(const kolo_named_tensor* gradients, size_t count,
                                                const kolo_named_tensor* parameters,
                                                size_t parameter_count,
                                                const kolo_optimizer_options* options,
                                                kolo_optimizer** optimizer);

/// Frees an optimizer, after operations that are pending. Not collective. No effect for null.
KOLO_C_EXPORT kolo_status kolo_optimizer_free(kolo_optimizer* optimizer);

/// Declares that this gradient is complete in this backward pass. Do not touch it until
/// `kolo_optimizer_reduce` or `kolo_optimizer_begin_step` returns. In the last pass of a step, this
/// call starts the gradient's reduction, or that of its group once all are ready.
/// KOLO_INVALID_ARGUMENT for an unknown name, for a gradient that is already ready, and between the
/// calls that begin and end a step.
KOLO_C_EXPORT kolo_status kolo_optimizer_ready(kolo_optimizer* optimizer, const char* name);

/// Ends a backward pass other than the last of `backward_passes_per_step`: nothing is reduced, and
/// gradients continue to accumulate. KOLO_INVALID_ARGUMENT in the last pass, which the step ends. A
/// step may also follow fewer passes, for example at the end of the data, if it does so on all
/// ranks.
KOLO_C_EXPORT kolo_status kolo_optimizer_end_pass(kolo_optimizer* optimizer);

/// Ends the backward pass: reduces all gradients and waits for them. Collective. Then
/// `kolo_optimizer_begin_reduced_step` begins the step, for a program that inspects or clips
/// gradients first. If it is not called, the step is skipped; if only some ranks skip it, all ranks
/// get KOLO_MISMATCH.
KOLO_C_EXPORT kolo_status kolo_optimizer_reduce(kolo_optimizer* optimizer);

/// Scales the reduced gradients if their joint 2-norm exceeds `max_norm`, which must be positive;
/// with sharding, this rank's shards of them. Sets `*norm`, unless null, to the norm before
/// scaling, with the same bits on all ranks of the set; infinity or NaN if a gradient has such an
/// element. Collective. Call it after `kolo_optimizer_reduce`, and do not change a gradient in
/// between. KOLO_INVALID_ARGUMENT before that, and for gradients that are integers or in GPU
/// memory.
KOLO_C_EXPORT kolo_status kolo_optimizer_clip_grad_norm(kolo_optimizer* optimizer, double max_norm,
                                                        double* norm);

/// Reduces the gradients, and begins a step: update the parameters, then call
/// `kolo_optimizer_end_step`. Collective.
KOLO_C_EXPORT kolo_status kolo_optimizer_begin_step(kolo_optimizer* optimizer);

/// Begins a step with the gradients that `kolo_optimizer_reduce` has reduced. Collective. A
/// reduction is good for one step. KOLO_INVALID_ARGUMENT if there is none, or if
/// `kolo_optimizer_ready` or `kolo_optimizer_end_pass` was called since.
KOLO_C_EXPORT kolo_status kolo_optimizer_begin_reduced_step(kolo_optimizer* optimizer);

/// Ends a step. With sharding it gathers the parameters, of which each rank has updated its shards,
/// and is collective; if one rank steps and another discards, all get KOLO_MISMATCH, and then
/// parameters and state are invalid until both are loaded from a checkpoint. KOLO_INVALID_ARGUMENT
/// unless a step has begun.
KOLO_C_EXPORT kolo_status kolo_optimizer_end_step(kolo_optimizer* optimizer);

/// Drops the gradients of this step and its passes, also between the calls that begin and end a
/// step. Collective, even after a `kolo_join`, because reductions that some rank has begun must
/// complete. If one rank discards a step that others apply, each later step fails with
/// KOLO_MISMATCH on all ranks until they call `kolo_optimizer_rejoin`.
KOLO_C_EXPORT kolo_status kolo_optimizer_discard(kolo_optimizer* optimizer);

/// Call it after a new session has begun: discards an unfinished step, and compares names, shapes,
/// dtypes and options between the ranks again. Collective in the world. KOLO_INVALID_ARGUMENT for
/// an optimizer of a process set, which ends with its session.
KOLO_C_EXPORT kolo_status kolo_optimizer_rejoin(kolo_optimizer* optimizer);

/// This rank's shard of the parameter with this index, and of its gradient: the elements [begin,
/// end), in row-major order. It may be empty, is the whole tensor on ranks outside the process set,
/// and changes after `kolo_optimizer_rejoin` if the number of ranks has changed. Elements are split
/// as by `kolo_reducescatter_rows`. With KOLO_SHARD_STATE_AND_GRADIENTS, only this shard of a
/// reduced gradient is valid. Every rank must update its shards: a rank that runs out of data steps
/// with zero gradients, because after a `kolo_join` the other ranks' steps fail with KOLO_MISMATCH.
/// KOLO_INVALID_ARGUMENT without sharding, or for an unknown index.
KOLO_C_EXPORT kolo_status kolo_optimizer_shard(kolo_optimizer* optimizer, size_t parameter,
                                               int64_t* begin, int64_t* end);

/// Copies `root`'s tensors to every rank of the set (null: the world). Collective; `root` is a
/// world rank and a member. KOLO_MISMATCH on every rank, before any tensor changes, if names,
/// shapes or dtypes differ.
KOLO_C_EXPORT kolo_status kolo_broadcast_parameters(const kolo_named_tensor* parameters,
                                                    size_t count, int root,
                                                    kolo_process_set* process_set);

/// Fails with KOLO_MISMATCH on every rank of the set (null: the world) unless names, dtypes, shapes
/// and elements of the tensors are equal on all ranks, bit for bit. The message names the first
/// tensor that differs, and the ranks. Elements are compared by a hash: two different tensors pass
/// with a probability of 5e-10. Collective. KOLO_INVALID_ARGUMENT for an empty or repeated name,
/// and for GPU memory.
KOLO_C_EXPORT kolo_status kolo_require_equal(const kolo_named_tensor* tensors, size_t count,
                                             kolo_process_set* process_set);

#ifdef __cplusplus
}
#endif

#endif
