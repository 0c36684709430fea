// SPDX-License-Identifier: Apache-2.0
// Checkpoints, which any number of ranks can resume, and safetensors files.
//
//     kolo_named_tensor model[1] = {{"weight", {weight, KOLO_F32, {KOLO_CPU, 0}, 1, &n}}};
//     kolo_part part = {"model", model, 1, NULL, 0};
//     kolo_checkpointer_options options = KOLO_CHECKPOINTER_OPTIONS;
//     options.directory = "run1";
//     kolo_checkpointer_create(&options, &checkpointer);
//     kolo_checkpointer_load_latest(checkpointer, &checkpoint);
//     if (checkpoint != NULL) {
//       kolo_checkpoint_part(checkpoint, KOLO_SHARED_PART, "model", &state);
//       kolo_state_load(state, model, 1, NULL, NULL);
//       ...
//     }
//     ...
//     kolo_checkpointer_save_async(checkpointer, step, &part, 1, NULL, NULL);
//
// Files are those of kolo::Checkpointer (kolo/training/checkpoint.hpp), which describes how ranks
// share the work. Tensors are in CPU memory. Use each handle from one thread at a time.
//
// Saving, loading and waiting are collectives of the world: all ranks call these functions in the
// same order, with the same step. A failure on one rank gives KOLO_CHECKPOINT_ERROR on every rank;
// no partial checkpoint remains, and the session stays usable. They can also fail like
// `kolo_allreduce`.
#ifndef KOLO_C_CHECKPOINT_H
#define KOLO_C_CHECKPOINT_H

#include "kolo/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Why a checkpoint cannot be used.
typedef enum kolo_checkpoint_fault {
  KOLO_FAULT_NONE = 0,        ///< The last error was no KOLO_CHECKPOINT_ERROR.
  KOLO_FAULT_MISSING = 1,     ///< There is no such file, or a checkpoint lacks one of its files.
  KOLO_FAULT_TRUNCATED = 2,   ///< The file is shorter than its header states.
  KOLO_FAULT_CORRUPT = 3,     ///< A checksum is wrong, or the file is too long.
  KOLO_FAULT_FOREIGN = 4,     ///< The file is not a checkpoint, or of an unknown version.
  KOLO_FAULT_INCOMPLETE = 5,  ///< The checkpoint has no part of the requested name.
  KOLO_FAULT_IO = 6,          ///< The system failed to read or write.
  KOLO_CHECKPOINT_FAULT_MAX_ = 0x7fffffff,
} kolo_checkpoint_fault;

/// Why the last error of this thread was a KOLO_CHECKPOINT_ERROR. Needs no session.
KOLO_C_EXPORT kolo_checkpoint_fault kolo_last_checkpoint_fault(void);

/// Whether the lowest or the highest metric is best.
typedef enum kolo_goal {
  KOLO_MINIMUM = 0,
  KOLO_MAXIMUM = 1,
  KOLO_GOAL_MAX_ = 0x7fffffff,
} kolo_goal;

/// A text and its name, both UTF-8.
typedef struct kolo_text {
  const char* name;
  const char* value;
} kolo_text;

/// A part of a checkpoint: the state of one object, as tensors and texts. The part of an object of
/// C++ that is a text, such as a sampler, is one tensor of bytes (KOLO_U8) with an empty name.
typedef struct kolo_part {
  const char* name;
  const kolo_named_tensor* tensors;
  size_t tensor_count;
  const kolo_text* texts;
  size_t text_count;
} kolo_part;

/// Saves and loads checkpoints.
typedef struct kolo_checkpointer kolo_checkpointer;
/// A checkpoint that was found. Its tensors are read from the files when they are used, so a later
/// save may remove them: load before you save.
typedef struct kolo_checkpoint kolo_checkpoint;
/// A part of a checkpoint, or the contents of a safetensors file.
typedef struct kolo_state kolo_state;

/// Options of `kolo_checkpointer_create`.
typedef struct kolo_checkpointer_options {
  size_t size;            ///< sizeof(kolo_checkpointer_options)
  const char* directory;  ///< Of rank 0; relative to the working directory. Needed. Created by the
                          ///< first save.
  const char*
      prefix;  ///< Checkpoints are folders named `<prefix>-<step>`, with at least ten digits.
  int32_t keep_last;  ///< Number of most recent checkpoints to keep; at least 1.
  int32_t keep_best;  ///< 1: also keep the checkpoint with the best metric.
  kolo_goal best;
} kolo_checkpointer_options;
#define KOLO_CHECKPOINTER_OPTIONS \
  { sizeof(kolo_checkpointer_options), NULL, "checkpoint", 2, 1, KOLO_MINIMUM }

/// Gives a checkpointer, which you free. Local. KOLO_INVALID_ARGUMENT without a directory, for a
/// prefix that is empty or contains a slash, and for a `keep_last` below 1.
KOLO_C_EXPORT kolo_status kolo_checkpointer_create(const kolo_checkpointer_options* options,
                                                   kolo_checkpointer** checkpointer);

/// Waits until the last asynchronous save is written; a warning reports its failure. Frees the
/// checkpointer. Local. No effect for null.
KOLO_C_EXPORT kolo_status kolo_checkpointer_free(kolo_checkpointer* checkpointer);

/// Optional contents of a checkpoint.
typedef struct kolo_save_options {
  size_t size;             ///< sizeof(kolo_save_options)
  int32_t has_metric;      ///< 1: `metric` decides which checkpoint is the best.
  int32_t refuse_if_busy;  ///< 1: `kolo_checkpointer_save_async` saves nothing while the previous
                           ///< checkpoint is being written, instead of waiting. Equal on all
                           ///< ranks.
  double metric;           ///< Rank 0's value is used. A NaN is never the best.
  const kolo_part* per_rank;  ///< `per_rank_count` parts that differ between ranks.
  size_t per_rank_count;
} kolo_save_options;
#define KOLO_SAVE_OPTIONS \
  { sizeof(kolo_save_options), 0, 0, 0.0, NULL, 0 }

/// Writes a checkpoint of `count` parts, which are equal on all ranks, and of the per-rank parts of
/// all ranks. Replaces a checkpoint of the same step, and removes checkpoints that the options do
/// not keep. Large tensors are divided among the ranks; their elements must be equal on all ranks,
/// which is not verified. Texts and small tensors are rank 0's; other ranks may leave parts out.
/// `options` may be null. KOLO_INVALID_ARGUMENT for a negative step, on this rank, and on all ranks
/// for parts that cannot be saved and for different steps.
KOLO_C_EXPORT kolo_status kolo_checkpointer_save(kolo_checkpointer* checkpointer, int64_t step,
                                                 const kolo_part* parts, size_t count,
                                                 const kolo_save_options* options);

/// As `kolo_checkpointer_save`, but returns once it has copied what this rank writes; a thread
/// writes the copy. The next call waits until the files are written, and fails on every rank with
/// what has failed. If the job ends before the checkpoint is complete, the previous one remains.
/// `*saves`, unless null, is set to 0 if the save was refused, else to 1.
KOLO_C_EXPORT kolo_status kolo_checkpointer_save_async(kolo_checkpointer* checkpointer,
                                                       int64_t step, const kolo_part* parts,
                                                       size_t count,
                                                       const kolo_save_options* options,
                                                       int* saves);

/// Waits until the last asynchronous save is complete, and fails with what has failed. If a rank
/// has left before its file was written, the save is given up: a warning says so.
KOLO_C_EXPORT kolo_status kolo_checkpointer_wait(kolo_checkpointer* checkpointer);

/// Gives the most recently saved undamaged checkpoint, which you free; sets `*checkpoint` to null
/// if there is none. The order of saves counts, not the step. Skips damaged checkpoints with a
/// warning on rank 0, and leaves them in place.
KOLO_C_EXPORT kolo_status kolo_checkpointer_load_latest(kolo_checkpointer* checkpointer,
                                                        kolo_checkpoint** checkpoint);
/// The same, for the checkpoint with the best metric; null if none has a metric.
KOLO_C_EXPORT kolo_status kolo_checkpointer_load_best(kolo_checkpointer* checkpointer,
                                                      kolo_checkpoint** checkpoint);

/// Gives the checkpoint at rank 0's `path`: its folder, or a file that is a whole checkpoint.
/// KOLO_CHECKPOINT_ERROR on every rank if it is missing, damaged or not a checkpoint.
KOLO_C_EXPORT kolo_status kolo_checkpoint_load(const char* path, kolo_checkpoint** checkpoint);

/// Frees a checkpoint; its parts may outlive it. Local, as all functions below. No effect for null.
KOLO_C_EXPORT kolo_status kolo_checkpoint_free(kolo_checkpoint* checkpoint);

/// The training step.
KOLO_C_EXPORT kolo_status kolo_checkpoint_step(kolo_checkpoint* checkpoint, int64_t* step);
/// The number of ranks that saved it.
KOLO_C_EXPORT kolo_status kolo_checkpoint_ranks(kolo_checkpoint* checkpoint, int* ranks);
/// The metric. KOLO_INVALID_ARGUMENT if it was saved without one.
KOLO_C_EXPORT kolo_status kolo_checkpoint_metric(kolo_checkpoint* checkpoint, double* metric);
/// Its path, as a string like that of `kolo_cpu_operations`.
KOLO_C_EXPORT kolo_status kolo_checkpoint_path(kolo_checkpoint* checkpoint, char* text,
                                               size_t capacity, size_t* length);

/// Stands for the shared parts where a rank is asked for.
#define KOLO_SHARED_PART (-1)

/// Gives the part of this name, which you free: a shared part with KOLO_SHARED_PART, else the
/// per-rank part of the rank `of_rank` among those that saved it. KOLO_CHECKPOINT_ERROR if there is
/// no such part, KOLO_INVALID_ARGUMENT if there was no such rank.
KOLO_C_EXPORT kolo_status kolo_checkpoint_part(kolo_checkpoint* checkpoint, int of_rank,
                                               const char* name, kolo_state** state);

/// Options of `kolo_state_load`.
typedef struct kolo_load_options {
  size_t size;              ///< sizeof(kolo_load_options)
  const char* prefix;       ///< Use only names with this prefix, without it. Null: all names.
  int32_t allow_unmatched;  ///< 1: names may be missing or unexpected.
} kolo_load_options;
#define KOLO_LOAD_OPTIONS \
  { sizeof(kolo_load_options), NULL, 0 }

/// Copies a state into `count` tensors by their names. `*unmatched`, unless null, is set to the
/// number of names that only the state or only the list has. KOLO_INVALID_ARGUMENT for a tensor of
/// another shape or dtype, and for missing and unexpected names unless they are allowed; then no
/// tensor is changed. KOLO_CHECKPOINT_ERROR if a file can no longer be read; earlier tensors are
/// then overwritten.
KOLO_C_EXPORT kolo_status kolo_state_load(kolo_state* state, const kolo_named_tensor* tensors,
                                          size_t count, const kolo_load_options* options,
                                          size_t* unmatched);

/// The number of tensors of a state.
KOLO_C_EXPORT kolo_status kolo_state_tensors(kolo_state* state, size_t* count);
/// The name of the tensor with this index, in the order of names, as a string like that of
/// `kolo_cpu_operations`. KOLO_INVALID_ARGUMENT for an unknown index, here and below.
KOLO_C_EXPORT kolo_status kolo_state_tensor_name(kolo_state* state, size_t index, char* text,
                                                 size_t capacity, size_t* length);
/// Its dtype, number of dimensions, and lengths of dimensions, of which `shape` has room for
/// `capacity`. KOLO_INVALID_ARGUMENT if it has more.
KOLO_C_EXPORT kolo_status kolo_state_tensor_shape(kolo_state* state, size_t index,
                                                  kolo_dtype* dtype, int32_t* dimensions,
                                                  int64_t* shape, size_t capacity);
/// The text of this name, as a string like that of `kolo_cpu_operations`. KOLO_INVALID_ARGUMENT if
/// there is none.
KOLO_C_EXPORT kolo_status kolo_state_text(kolo_state* state, const char* name, char* text,
                                          size_t capacity, size_t* length);
/// Frees a state. No effect for null.
KOLO_C_EXPORT kolo_status kolo_state_free(kolo_state* state);

/// Gives the contents of a safetensors file, which you free, or of the files that an index
/// (`*.index.json`) in the same folder lists. A folder, such as a checkpoint, stands for its index.
/// The contents are held in memory. KOLO_CHECKPOINT_ERROR if the file is missing, damaged or of
/// another format. Needs no session, as the functions below; not collective; thread-safe.
KOLO_C_EXPORT kolo_status kolo_load_safetensors(const char* path, kolo_state** state);

/// Writes a safetensors file of `count` tensors and `text_count` texts: under a temporary name,
/// flushed to disk, and renamed, so that `path` always names a complete file. KOLO_INVALID_ARGUMENT
/// for a tensor on a GPU and for strings that are not UTF-8; KOLO_CHECKPOINT_ERROR if the system
/// fails.
KOLO_C_EXPORT kolo_status kolo_save_safetensors(const char* path, const kolo_named_tensor* tensors,
                                                size_t count, const kolo_text* texts,
                                                size_t text_count);

/// Writes the tensors of the checkpoint `from`, its folder or its index, to the file `to`: a whole
/// checkpoint if `part` is null or empty. Else the file has only the tensors of this part, under
/// their names in the part. KOLO_INVALID_ARGUMENT for a part that the checkpoint lacks.
KOLO_C_EXPORT kolo_status kolo_merge_checkpoint(const char* from, const char* to, const char* part);

#ifdef __cplusplus
}
#endif

#endif
