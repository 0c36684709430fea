// SPDX-License-Identifier: Apache-2.0
// The types of Kolo's C interface: status, tensors, and the handles of objects.
//
// Rules of the whole interface:
// - Functions that can fail return a `kolo_status` and write their results through pointers.
//   kolo/c/error.h has the message and the ranks of an error. If a function fails, its results are
//   not set.
// - A pointer must not be null unless its function says so; a null pointer gives
//   KOLO_INVALID_ARGUMENT. Strings end with a zero byte. Names and texts must be UTF-8, or give
//   KOLO_INVALID_ARGUMENT; paths and settings may be any bytes. Arguments are copied, except the
//   memory of tensors, and memory that a function says must stay alive.
// - Objects are handles: the pointer types that are only declared here. A handle that was freed, or
//   that is no handle of this type, gives KOLO_INVALID_ARGUMENT. Free each handle once.
// - Functions are thread-safe unless they say otherwise. Requests are not thread-safe: a call gives
//   KOLO_INVALID_ARGUMENT while another thread is using the same request.
// - No exception leaves a function. A callback must neither throw nor longjmp, and a thread must
// not be cancelled inside of a function.
#ifndef KOLO_C_TYPES_H
#define KOLO_C_TYPES_H

#include <stddef.h>
#include <stdint.h>

/// Marks the functions of the C interface, which a shared library exports.
#if defined(__GNUC__)
#define KOLO_C_EXPORT __attribute__((visibility("default")))
#else
#define KOLO_C_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// The result of a call: success, or the class of the error. kolo/error.hpp describes the classes
/// up to KOLO_NOT_INITIALIZED, which have the same names in C++. KOLO_BACKWARD_FAILED
/// and KOLO_HOOK_FAILED come from ranks that use LibTorch or hooks, which C does not have. New
/// values may be added, so treat an unknown value as KOLO_ERROR.
typedef enum kolo_status {
  KOLO_OK = 0,
  KOLO_ERROR = 1,             ///< An error of no other class.
  KOLO_INVALID_ARGUMENT = 2,  ///< An argument is wrong, or the call is not allowed now. Local to
                              ///< this rank unless stated otherwise; nothing was submitted.
  KOLO_DUPLICATE_NAME = 3,    ///< An operation of this name is pending. Nothing was submitted.
  KOLO_MISMATCH = 4,          ///< The ranks disagree. Tensors are unchanged; the session is usable.
  KOLO_PEER_LEFT = 5,         ///< A rank left or was lost. `kolo_last_error_ranks` names it.
  KOLO_STALLED = 6,           ///< Ranks did not submit it within `stall_shutdown`.
  KOLO_SHUT_DOWN = 7,         ///< This rank's session ended, or the process set was removed.
  KOLO_BACKEND_ERROR = 8,    ///< MPI, CUDA, NCCL or the system failed. The session cannot continue.
  KOLO_NOT_INITIALIZED = 9,  ///< There is no session.
  KOLO_BACKWARD_FAILED = 10,      ///< The backward pass failed on another rank.
  KOLO_HOOK_FAILED = 11,          ///< A communication hook failed on some rank.
  KOLO_CHECKPOINT_ERROR = 12,     ///< A checkpoint cannot be read or written.
  KOLO_MEMBERSHIP_CHANGED = 13,   ///< Ranks are about to join or leave an elastic job.
  KOLO_OUT_OF_MEMORY = 14,        ///< Memory could not be allocated on this rank.
  KOLO_FOREIGN_EXCEPTION = 15,    ///< An exception that is not Kolo's.
  KOLO_STATUS_MAX_ = 0x7fffffff,  ///< Not a value: makes the type as wide as an int.
} kolo_status;

/// Element types. F16 is IEEE binary16, BF16 the upper half of an F32; a BOOL is one byte.
typedef enum kolo_dtype {
  KOLO_U8 = 0,
  KOLO_I8 = 1,
  KOLO_U16 = 2,
  KOLO_I16 = 3,
  KOLO_U32 = 4,
  KOLO_I32 = 5,
  KOLO_U64 = 6,
  KOLO_I64 = 7,
  KOLO_F16 = 8,
  KOLO_BF16 = 9,
  KOLO_F32 = 10,
  KOLO_F64 = 11,
  KOLO_BOOL = 12,
  KOLO_DTYPE_MAX_ = 0x7fffffff,
} kolo_dtype;

/// The kinds of device that can hold a tensor.
typedef enum kolo_device_type {
  KOLO_CPU = 0,
  KOLO_CUDA = 1,
  KOLO_DEVICE_TYPE_MAX_ = 0x7fffffff,
} kolo_device_type;

/// The device of a tensor. `index` is CUDA's index of the GPU in this process; 0 for the CPU.
typedef struct kolo_device {
  kolo_device_type type;
  int32_t index;
} kolo_device;

/// A tensor: a description of memory of yours, row-major and without gaps. The memory must stay
/// alive, and nothing else may use it, until the operation is done. `shape` holds the lengths of
/// the dimensions, outermost first, and is needed only during the call; with 0 dimensions it may be
/// null: a scalar, with one element. For an input that a function only reads, cast `const` away. A
/// vector of `n` floats, with `n` an int64_t:
///
///     kolo_tensor gradients = {values, KOLO_F32, {KOLO_CPU, 0}, 1, &n};
typedef struct kolo_tensor {
  void* data;
  kolo_dtype dtype;
  kolo_device device;
  int32_t dimensions;
  const int64_t* shape;
} kolo_tensor;

/// A tensor and its name, which must be the same on all ranks. Names are not repeated in a list.
typedef struct kolo_named_tensor {
  const char* name;
  kolo_tensor tensor;
} kolo_named_tensor;

/// The operator that combines the elements of all ranks. kolo/types.hpp describes how each is
/// computed; in short, averages of integers are truncated toward zero, sums of integers wrap
/// around, MIN and MAX pass NaN on, and ADASUM is for floating-point types.
typedef enum kolo_reduce_op {
  KOLO_AVERAGE = 0,
  KOLO_SUM = 1,
  KOLO_MIN = 2,
  KOLO_MAX = 3,
  KOLO_PRODUCT = 4,
  KOLO_ADASUM = 5,
  KOLO_REDUCE_OP_MAX_ = 0x7fffffff,
} kolo_reduce_op;

/// The type in which F32 and F64 tensors are transferred: their own type or a two-byte one.
/// Compressed tensors are still summed in F32. Tensors of other types are never compressed.
typedef enum kolo_compression {
  KOLO_COMPRESSION_NONE = 0,
  KOLO_COMPRESSION_FP16 = 1,
  KOLO_COMPRESSION_BF16 = 2,
  KOLO_COMPRESSION_MAX_ = 0x7fffffff,
} kolo_compression;

/// The divisor of an average once ranks have joined (see `kolo_join`): the number of all members of
/// the set, or only of those that have not joined.
typedef enum kolo_average_over {
  KOLO_OVER_ALL = 0,
  KOLO_OVER_PRESENT = 1,
  KOLO_AVERAGE_OVER_MAX_ = 0x7fffffff,
} kolo_average_over;

/// A set of ranks of one session: kolo/c/process_set.h. Null stands for the world, all ranks.
typedef struct kolo_process_set kolo_process_set;
/// The result of an asynchronous operation: kolo/c/request.h.
typedef struct kolo_request kolo_request;
/// Reduces the gradients of one model: kolo/c/optimizer.h.
typedef struct kolo_optimizer kolo_optimizer;

#ifdef __cplusplus
}
#endif

#endif
