! SPDX-License-Identifier: Apache-2.0
! The declarations of kolo/c/kolo.h, whose comments describe them. tools/fortran.py has written
! this file: change the headers instead.
module kolo_c
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int), parameter :: kolo_ok = 0
  integer(c_int), parameter :: kolo_error = 1
  integer(c_int), parameter :: kolo_invalid_argument = 2
  integer(c_int), parameter :: kolo_duplicate_name = 3
  integer(c_int), parameter :: kolo_mismatch = 4
  integer(c_int), parameter :: kolo_peer_left = 5
  integer(c_int), parameter :: kolo_stalled = 6
  integer(c_int), parameter :: kolo_shut_down = 7
  integer(c_int), parameter :: kolo_backend_error = 8
  integer(c_int), parameter :: kolo_not_initialized = 9
  integer(c_int), parameter :: kolo_backward_failed = 10
  integer(c_int), parameter :: kolo_hook_failed = 11
  integer(c_int), parameter :: kolo_checkpoint_error = 12
  integer(c_int), parameter :: kolo_membership_changed = 13
  integer(c_int), parameter :: kolo_out_of_memory = 14
  integer(c_int), parameter :: kolo_foreign_exception = 15
  integer(c_int), parameter :: kolo_u8 = 0
  integer(c_int), parameter :: kolo_i8 = 1
  integer(c_int), parameter :: kolo_u16 = 2
  integer(c_int), parameter :: kolo_i16 = 3
  integer(c_int), parameter :: kolo_u32 = 4
  integer(c_int), parameter :: kolo_i32 = 5
  integer(c_int), parameter :: kolo_u64 = 6
  integer(c_int), parameter :: kolo_i64 = 7
  integer(c_int), parameter :: kolo_f16 = 8
  integer(c_int), parameter :: kolo_bf16 = 9
  integer(c_int), parameter :: kolo_f32 = 10
  integer(c_int), parameter :: kolo_f64 = 11
  integer(c_int), parameter :: kolo_bool = 12
  integer(c_int), parameter :: kolo_cpu = 0
  integer(c_int), parameter :: kolo_cuda = 1
  integer(c_int), parameter :: kolo_average = 0
  integer(c_int), parameter :: kolo_sum = 1
  integer(c_int), parameter :: kolo_min = 2
  integer(c_int), parameter :: kolo_max = 3
  integer(c_int), parameter :: kolo_product = 4
  integer(c_int), parameter :: kolo_adasum = 5
  integer(c_int), parameter :: kolo_compression_none = 0
  integer(c_int), parameter :: kolo_compression_fp16 = 1
  integer(c_int), parameter :: kolo_compression_bf16 = 2
  integer(c_int), parameter :: kolo_over_all = 0
  integer(c_int), parameter :: kolo_over_present = 1
  integer(c_int), parameter :: kolo_accumulate_sum = 0
  integer(c_int), parameter :: kolo_accumulate_mean = 1
  integer(c_int), parameter :: kolo_shard_nothing = 0
  integer(c_int), parameter :: kolo_shard_state = 1
  integer(c_int), parameter :: kolo_shard_state_and_gradients = 2
  integer(c_int), parameter :: kolo_fault_none = 0
  integer(c_int), parameter :: kolo_fault_missing = 1
  integer(c_int), parameter :: kolo_fault_truncated = 2
  integer(c_int), parameter :: kolo_fault_corrupt = 3
  integer(c_int), parameter :: kolo_fault_foreign = 4
  integer(c_int), parameter :: kolo_fault_incomplete = 5
  integer(c_int), parameter :: kolo_fault_io = 6
  integer(c_int), parameter :: kolo_minimum = 0
  integer(c_int), parameter :: kolo_maximum = 1
  integer(c_int), parameter :: kolo_shared_part = -1

  type, bind(C) :: kolo_device
    integer(c_int) :: type
    integer(c_int32_t) :: index
  end type kolo_device

  type, bind(C) :: kolo_tensor
    type(c_ptr) :: data
    integer(c_int) :: dtype
    type(kolo_device) :: device
    integer(c_int32_t) :: dimensions
    type(c_ptr) :: shape
  end type kolo_tensor

  type, bind(C) :: kolo_named_tensor
    type(c_ptr) :: name
    type(kolo_tensor) :: tensor
  end type kolo_named_tensor

  type, bind(C) :: kolo_setting
    type(c_ptr) :: name
    type(c_ptr) :: value
  end type kolo_setting

  type, bind(C) :: kolo_collective_options
    integer(c_size_t) :: size = 24_c_size_t
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: process_set = c_null_ptr
  end type kolo_collective_options

  type, bind(C) :: kolo_reduce_options
    integer(c_size_t) :: size = 56_c_size_t
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: process_set = c_null_ptr
    integer(c_int) :: op = kolo_average
    integer(c_int) :: compression = kolo_compression_none
    real(c_double) :: prescale = 1.0_c_double
    real(c_double) :: postscale = 1.0_c_double
    integer(c_int) :: average_over = kolo_over_all
    integer(c_int32_t) :: fuse_exactly = 0
  end type kolo_reduce_options

  type, bind(C) :: kolo_gradient_group
    type(c_ptr) :: names
    integer(c_size_t) :: count
  end type kolo_gradient_group

  type, bind(C) :: kolo_optimizer_options
    integer(c_size_t) :: size = 88_c_size_t
    type(c_ptr) :: process_set = c_null_ptr
    integer(c_int) :: op = kolo_average
    integer(c_int) :: compression = kolo_compression_none
    integer(c_int) :: accumulation = kolo_accumulate_sum
    integer(c_int32_t) :: backward_passes_per_step = 1
    real(c_double) :: gradient_predivide_factor = 1.0_c_double
    type(c_ptr) :: groups = c_null_ptr
    integer(c_size_t) :: group_count = 0
    integer(c_int32_t) :: num_groups = 0
    integer(c_int) :: sharding = kolo_shard_nothing
    integer(c_int32_t) :: compare_at_start = 1
    integer(c_int32_t) :: compare_every = 0
    type(c_ptr) :: compare_except = c_null_ptr
    integer(c_size_t) :: except_count = 0
  end type kolo_optimizer_options

  type, bind(C) :: kolo_text
    type(c_ptr) :: name
    type(c_ptr) :: value
  end type kolo_text

  type, bind(C) :: kolo_part
    type(c_ptr) :: name
    type(c_ptr) :: tensors
    integer(c_size_t) :: tensor_count
    type(c_ptr) :: texts
    integer(c_size_t) :: text_count
  end type kolo_part

  type, bind(C) :: kolo_checkpointer_options
    integer(c_size_t) :: size = 40_c_size_t
    type(c_ptr) :: directory = c_null_ptr
    type(c_ptr) :: prefix = c_null_ptr
    integer(c_int32_t) :: keep_last = 2
    integer(c_int32_t) :: keep_best = 1
    integer(c_int) :: best = kolo_minimum
  end type kolo_checkpointer_options

  type, bind(C) :: kolo_save_options
    integer(c_size_t) :: size = 40_c_size_t
    integer(c_int32_t) :: has_metric = 0
    integer(c_int32_t) :: refuse_if_busy = 0
    real(c_double) :: metric = 0.0_c_double
    type(c_ptr) :: per_rank = c_null_ptr
    integer(c_size_t) :: per_rank_count = 0
  end type kolo_save_options

  type, bind(C) :: kolo_load_options
    integer(c_size_t) :: size = 24_c_size_t
    type(c_ptr) :: prefix = c_null_ptr
    integer(c_int32_t) :: allow_unmatched = 0
  end type kolo_load_options

  type, bind(C) :: kolo_histogram
    integer(c_int64_t) :: count
    integer(c_int64_t) :: sum
    integer(c_int64_t) :: max
    integer(c_int64_t) :: buckets(64)
  end type kolo_histogram

  type, bind(C) :: kolo_statistics
    integer(c_int64_t) :: submitted
    integer(c_int64_t) :: finished
    integer(c_int64_t) :: failed
    integer(c_int64_t) :: batches
    integer(c_int64_t) :: plans
    integer(c_int64_t) :: plan_batches
    integer(c_int64_t) :: messages_sent
    integer(c_int64_t) :: message_bytes_sent
    integer(c_int64_t) :: messages_received
    integer(c_int64_t) :: message_bytes_received
    integer(c_int64_t) :: wakes
    type(kolo_histogram) :: batch_operations
    type(kolo_histogram) :: batch_bytes
    type(kolo_histogram) :: negotiation
    type(kolo_histogram) :: execution
    type(kolo_histogram) :: packing
    type(kolo_histogram) :: reducing
    type(kolo_histogram) :: unpacking
    type(kolo_histogram) :: waiting
  end type kolo_statistics

  type, bind(C) :: kolo_build
    type(c_ptr) :: version
    type(c_ptr) :: mpi_library
    type(c_ptr) :: cuda
    type(c_ptr) :: nccl
  end type kolo_build

  interface

    function kolo_last_error() bind(C)
      import
      integer(c_int) :: kolo_last_error
    end function kolo_last_error

    function kolo_last_error_message() bind(C)
      import
      type(c_ptr) :: kolo_last_error_message
    end function kolo_last_error_message

    function kolo_last_error_tensor() bind(C)
      import
      type(c_ptr) :: kolo_last_error_tensor
    end function kolo_last_error_tensor

    function kolo_last_error_ranks(ranks) bind(C)
      import
      integer(c_size_t) :: kolo_last_error_ranks
      type(c_ptr), intent(inout), optional :: ranks
    end function kolo_last_error_ranks

    function kolo_status_name(status) bind(C)
      import
      type(c_ptr) :: kolo_status_name
      integer(c_int), value :: status
    end function kolo_status_name

    function kolo_init(argc, argv, settings, count) bind(C)
      import
      integer(c_int) :: kolo_init
      integer(c_int), value :: argc
      type(c_ptr), value :: argv
      type(kolo_setting), intent(in), optional :: settings(*)
      integer(c_size_t), value :: count
    end function kolo_init

    function kolo_shutdown() bind(C)
      import
      integer(c_int) :: kolo_shutdown
    end function kolo_shutdown

    function kolo_initialized() bind(C)
      import
      integer(c_int) :: kolo_initialized
    end function kolo_initialized

    function kolo_rank(rank) bind(C)
      import
      integer(c_int) :: kolo_rank
      integer(c_int), intent(inout), optional :: rank
    end function kolo_rank

    function kolo_size(size) bind(C)
      import
      integer(c_int) :: kolo_size
      integer(c_int), intent(inout), optional :: size
    end function kolo_size

    function kolo_local_rank(rank) bind(C)
      import
      integer(c_int) :: kolo_local_rank
      integer(c_int), intent(inout), optional :: rank
    end function kolo_local_rank

    function kolo_local_size(size) bind(C)
      import
      integer(c_int) :: kolo_local_size
      integer(c_int), intent(inout), optional :: size
    end function kolo_local_size

    function kolo_cross_rank(rank) bind(C)
      import
      integer(c_int) :: kolo_cross_rank
      integer(c_int), intent(inout), optional :: rank
    end function kolo_cross_rank

    function kolo_cross_size(size) bind(C)
      import
      integer(c_int) :: kolo_cross_size
      integer(c_int), intent(inout), optional :: size
    end function kolo_cross_size

    function kolo_homogeneous(homogeneous) bind(C)
      import
      integer(c_int) :: kolo_homogeneous
      integer(c_int), intent(inout), optional :: homogeneous
    end function kolo_homogeneous

    function kolo_cpu_operations(text, capacity, length) bind(C)
      import
      integer(c_int) :: kolo_cpu_operations
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(inout), optional :: length
    end function kolo_cpu_operations

    function kolo_stop_requested(stops) bind(C)
      import
      integer(c_int) :: kolo_stop_requested
      integer(c_int), intent(inout), optional :: stops
    end function kolo_stop_requested

    subroutine kolo_request_stop() bind(C)
      import
    end subroutine kolo_request_stop

    function kolo_version() bind(C)
      import
      type(c_ptr) :: kolo_version
    end function kolo_version

    function kolo_process_set_add(ranks, count, set) bind(C)
      import
      integer(c_int) :: kolo_process_set_add
      integer(c_int), intent(in), optional :: ranks(*)
      integer(c_size_t), value :: count
      type(c_ptr), intent(inout), optional :: set
    end function kolo_process_set_add

    function kolo_process_set_remove(set) bind(C)
      import
      integer(c_int) :: kolo_process_set_remove
      type(c_ptr), value :: set
    end function kolo_process_set_remove

    function kolo_process_set_free(set) bind(C)
      import
      integer(c_int) :: kolo_process_set_free
      type(c_ptr), value :: set
    end function kolo_process_set_free

    function kolo_process_set_id(set, id) bind(C)
      import
      integer(c_int) :: kolo_process_set_id
      type(c_ptr), value :: set
      integer(c_int64_t), intent(inout), optional :: id
    end function kolo_process_set_id

    function kolo_process_set_size(set, size) bind(C)
      import
      integer(c_int) :: kolo_process_set_size
      type(c_ptr), value :: set
      integer(c_int), intent(inout), optional :: size
    end function kolo_process_set_size

    function kolo_process_set_rank(set, rank) bind(C)
      import
      integer(c_int) :: kolo_process_set_rank
      type(c_ptr), value :: set
      integer(c_int), intent(inout), optional :: rank
    end function kolo_process_set_rank

    function kolo_process_set_ranks(set, ranks, capacity) bind(C)
      import
      integer(c_int) :: kolo_process_set_ranks
      type(c_ptr), value :: set
      integer(c_int), intent(inout), optional :: ranks(*)
      integer(c_size_t), value :: capacity
    end function kolo_process_set_ranks

    function kolo_request_wait(request) bind(C)
      import
      integer(c_int) :: kolo_request_wait
      type(c_ptr), value :: request
    end function kolo_request_wait

    function kolo_request_wait_for(request, seconds, done) bind(C)
      import
      integer(c_int) :: kolo_request_wait_for
      type(c_ptr), value :: request
      real(c_double), value :: seconds
      integer(c_int), intent(inout), optional :: done
    end function kolo_request_wait_for

    function kolo_request_synchronize(request) bind(C)
      import
      integer(c_int) :: kolo_request_synchronize
      type(c_ptr), value :: request
    end function kolo_request_synchronize

    function kolo_request_ready(request, ready) bind(C)
      import
      integer(c_int) :: kolo_request_ready
      type(c_ptr), value :: request
      integer(c_int), intent(inout), optional :: ready
    end function kolo_request_ready

    function kolo_request_finished(request, finished) bind(C)
      import
      integer(c_int) :: kolo_request_finished
      type(c_ptr), value :: request
      integer(c_int), intent(inout), optional :: finished
    end function kolo_request_finished

    function kolo_request_wait_any(requests, count, index) bind(C)
      import
      integer(c_int) :: kolo_request_wait_any
      type(c_ptr), intent(in), optional :: requests(*)
      integer(c_size_t), value :: count
      integer(c_size_t), intent(inout), optional :: index
    end function kolo_request_wait_any

    function kolo_request_free(request) bind(C)
      import
      integer(c_int) :: kolo_request_free
      type(c_ptr), value :: request
    end function kolo_request_free

    function kolo_allocate(rows, members, bytes, user) bind(C)
      import
      type(c_ptr) :: kolo_allocate
      integer(c_int64_t), intent(in), optional :: rows(*)
      integer(c_size_t), value :: members
      integer(c_size_t), value :: bytes
      type(c_ptr), value :: user
    end function kolo_allocate

    function kolo_allreduce(tensor, options) bind(C)
      import
      integer(c_int) :: kolo_allreduce
      type(kolo_tensor), intent(in), optional :: tensor
      type(kolo_reduce_options), intent(in), optional :: options
    end function kolo_allreduce

    function kolo_allreduce_async(tensor, options, request) bind(C)
      import
      integer(c_int) :: kolo_allreduce_async
      type(kolo_tensor), intent(in), optional :: tensor
      type(kolo_reduce_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_allreduce_async

    function kolo_allreduce_into(input, output, options) bind(C)
      import
      integer(c_int) :: kolo_allreduce_into
      type(kolo_tensor), intent(in), optional :: input
      type(kolo_tensor), intent(in), optional :: output
      type(kolo_reduce_options), intent(in), optional :: options
    end function kolo_allreduce_into

    function kolo_allreduce_into_async(input, output, options, request) bind(C)
      import
      integer(c_int) :: kolo_allreduce_into_async
      type(kolo_tensor), intent(in), optional :: input
      type(kolo_tensor), intent(in), optional :: output
      type(kolo_reduce_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_allreduce_into_async

    function kolo_reducescatter_rows(rows, index, size) bind(C)
      import
      integer(c_int64_t) :: kolo_reducescatter_rows
      integer(c_int64_t), value :: rows
      integer(c_int), value :: index
      integer(c_int), value :: size
    end function kolo_reducescatter_rows

    function kolo_reducescatter(input, output, options) bind(C)
      import
      integer(c_int) :: kolo_reducescatter
      type(kolo_tensor), intent(in), optional :: input
      type(kolo_tensor), intent(in), optional :: output
      type(kolo_reduce_options), intent(in), optional :: options
    end function kolo_reducescatter

    function kolo_reducescatter_async(input, output, options, request) bind(C)
      import
      integer(c_int) :: kolo_reducescatter_async
      type(kolo_tensor), intent(in), optional :: input
      type(kolo_tensor), intent(in), optional :: output
      type(kolo_reduce_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_reducescatter_async

    function kolo_allgather(tensor, allocate, user, rows, options) bind(C)
      import
      integer(c_int) :: kolo_allgather
      type(kolo_tensor), intent(in), optional :: tensor
      type(c_funptr), value :: allocate
      type(c_ptr), value :: user
      integer(c_int64_t), intent(inout), optional :: rows(*)
      type(kolo_collective_options), intent(in), optional :: options
    end function kolo_allgather

    function kolo_allgather_async(tensor, allocate, user, rows, options, request) bind(C)
      import
      integer(c_int) :: kolo_allgather_async
      type(kolo_tensor), intent(in), optional :: tensor
      type(c_funptr), value :: allocate
      type(c_ptr), value :: user
      integer(c_int64_t), intent(inout), optional :: rows(*)
      type(kolo_collective_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_allgather_async

    function kolo_broadcast(tensor, root, options) bind(C)
      import
      integer(c_int) :: kolo_broadcast
      type(kolo_tensor), intent(in), optional :: tensor
      integer(c_int), value :: root
      type(kolo_collective_options), intent(in), optional :: options
    end function kolo_broadcast

    function kolo_broadcast_async(tensor, root, options, request) bind(C)
      import
      integer(c_int) :: kolo_broadcast_async
      type(kolo_tensor), intent(in), optional :: tensor
      integer(c_int), value :: root
      type(kolo_collective_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_broadcast_async

    function kolo_broadcast_into(input, output, root, options) bind(C)
      import
      integer(c_int) :: kolo_broadcast_into
      type(kolo_tensor), intent(in), optional :: input
      type(kolo_tensor), intent(in), optional :: output
      integer(c_int), value :: root
      type(kolo_collective_options), intent(in), optional :: options
    end function kolo_broadcast_into

    function kolo_broadcast_into_async(input, output, root, options, request) bind(C)
      import
      integer(c_int) :: kolo_broadcast_into_async
      type(kolo_tensor), intent(in), optional :: input
      type(kolo_tensor), intent(in), optional :: output
      integer(c_int), value :: root
      type(kolo_collective_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_broadcast_into_async

    function kolo_alltoall(tensor, counts, members, allocate, user, rows, options) bind(C)
      import
      integer(c_int) :: kolo_alltoall
      type(kolo_tensor), intent(in), optional :: tensor
      integer(c_int64_t), intent(in), optional :: counts(*)
      integer(c_size_t), value :: members
      type(c_funptr), value :: allocate
      type(c_ptr), value :: user
      integer(c_int64_t), intent(inout), optional :: rows(*)
      type(kolo_collective_options), intent(in), optional :: options
    end function kolo_alltoall

    function kolo_alltoall_async(tensor, counts, members, allocate, user, rows, options, &
        request) bind(C)
      import
      integer(c_int) :: kolo_alltoall_async
      type(kolo_tensor), intent(in), optional :: tensor
      integer(c_int64_t), intent(in), optional :: counts(*)
      integer(c_size_t), value :: members
      type(c_funptr), value :: allocate
      type(c_ptr), value :: user
      integer(c_int64_t), intent(inout), optional :: rows(*)
      type(kolo_collective_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_alltoall_async

    function kolo_barrier(options) bind(C)
      import
      integer(c_int) :: kolo_barrier
      type(kolo_collective_options), intent(in), optional :: options
    end function kolo_barrier

    function kolo_barrier_async(options, request) bind(C)
      import
      integer(c_int) :: kolo_barrier_async
      type(kolo_collective_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_barrier_async

    function kolo_join(last_rank) bind(C)
      import
      integer(c_int) :: kolo_join
      integer(c_int), intent(inout), optional :: last_rank
    end function kolo_join

    function kolo_join_async(last_rank, request) bind(C)
      import
      integer(c_int) :: kolo_join_async
      integer(c_int), intent(inout), optional :: last_rank
      type(c_ptr), intent(inout), optional :: request
    end function kolo_join_async

    function kolo_grouped_allreduce(tensors, count, options) bind(C)
      import
      integer(c_int) :: kolo_grouped_allreduce
      type(kolo_tensor), intent(in), optional :: tensors(*)
      integer(c_size_t), value :: count
      type(kolo_reduce_options), intent(in), optional :: options
    end function kolo_grouped_allreduce

    function kolo_grouped_allreduce_async(tensors, count, options, request) bind(C)
      import
      integer(c_int) :: kolo_grouped_allreduce_async
      type(kolo_tensor), intent(in), optional :: tensors(*)
      integer(c_size_t), value :: count
      type(kolo_reduce_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_grouped_allreduce_async

    function kolo_grouped_reducescatter(inputs, outputs, count, options) bind(C)
      import
      integer(c_int) :: kolo_grouped_reducescatter
      type(kolo_tensor), intent(in), optional :: inputs(*)
      type(kolo_tensor), intent(in), optional :: outputs(*)
      integer(c_size_t), value :: count
      type(kolo_reduce_options), intent(in), optional :: options
    end function kolo_grouped_reducescatter

    function kolo_grouped_reducescatter_async(inputs, outputs, count, options, request) bind(C)
      import
      integer(c_int) :: kolo_grouped_reducescatter_async
      type(kolo_tensor), intent(in), optional :: inputs(*)
      type(kolo_tensor), intent(in), optional :: outputs(*)
      integer(c_size_t), value :: count
      type(kolo_reduce_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_grouped_reducescatter_async

    function kolo_grouped_allgather(tensors, count, allocate, users, rows, options) bind(C)
      import
      integer(c_int) :: kolo_grouped_allgather
      type(kolo_tensor), intent(in), optional :: tensors(*)
      integer(c_size_t), value :: count
      type(c_funptr), value :: allocate
      type(c_ptr), intent(in), optional :: users(*)
      integer(c_int64_t), intent(inout), optional :: rows(*)
      type(kolo_collective_options), intent(in), optional :: options
    end function kolo_grouped_allgather

    function kolo_grouped_allgather_async(tensors, count, allocate, users, rows, options, &
        request) bind(C)
      import
      integer(c_int) :: kolo_grouped_allgather_async
      type(kolo_tensor), intent(in), optional :: tensors(*)
      integer(c_size_t), value :: count
      type(c_funptr), value :: allocate
      type(c_ptr), intent(in), optional :: users(*)
      integer(c_int64_t), intent(inout), optional :: rows(*)
      type(kolo_collective_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: request
    end function kolo_grouped_allgather_async

    function kolo_optimizer_create(gradients, count, parameters, parameter_count, options, &
        optimizer) bind(C)
      import
      integer(c_int) :: kolo_optimizer_create
      type(kolo_named_tensor), intent(in), optional :: gradients(*)
      integer(c_size_t), value :: count
      type(kolo_named_tensor), intent(in), optional :: parameters(*)
      integer(c_size_t), value :: parameter_count
      type(kolo_optimizer_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: optimizer
    end function kolo_optimizer_create

    function kolo_optimizer_free(optimizer) bind(C)
      import
      integer(c_int) :: kolo_optimizer_free
      type(c_ptr), value :: optimizer
    end function kolo_optimizer_free

    function kolo_optimizer_ready(optimizer, name) bind(C)
      import
      integer(c_int) :: kolo_optimizer_ready
      type(c_ptr), value :: optimizer
      character(kind=c_char), intent(in), optional :: name(*)
    end function kolo_optimizer_ready

    function kolo_optimizer_end_pass(optimizer) bind(C)
      import
      integer(c_int) :: kolo_optimizer_end_pass
      type(c_ptr), value :: optimizer
    end function kolo_optimizer_end_pass

    function kolo_optimizer_reduce(optimizer) bind(C)
      import
      integer(c_int) :: kolo_optimizer_reduce
      type(c_ptr), value :: optimizer
    end function kolo_optimizer_reduce

    function kolo_optimizer_clip_grad_norm(optimizer, max_norm, norm) bind(C)
      import
      integer(c_int) :: kolo_optimizer_clip_grad_norm
      type(c_ptr), value :: optimizer
      real(c_double), value :: max_norm
      real(c_double), intent(inout), optional :: norm
    end function kolo_optimizer_clip_grad_norm

    function kolo_optimizer_begin_step(optimizer) bind(C)
      import
      integer(c_int) :: kolo_optimizer_begin_step
      type(c_ptr), value :: optimizer
    end function kolo_optimizer_begin_step

    function kolo_optimizer_begin_reduced_step(optimizer) bind(C)
      import
      integer(c_int) :: kolo_optimizer_begin_reduced_step
      type(c_ptr), value :: optimizer
    end function kolo_optimizer_begin_reduced_step

    function kolo_optimizer_end_step(optimizer) bind(C)
      import
      integer(c_int) :: kolo_optimizer_end_step
      type(c_ptr), value :: optimizer
    end function kolo_optimizer_end_step

    function kolo_optimizer_discard(optimizer) bind(C)
      import
      integer(c_int) :: kolo_optimizer_discard
      type(c_ptr), value :: optimizer
    end function kolo_optimizer_discard

    function kolo_optimizer_rejoin(optimizer) bind(C)
      import
      integer(c_int) :: kolo_optimizer_rejoin
      type(c_ptr), value :: optimizer
    end function kolo_optimizer_rejoin

    function kolo_optimizer_shard(optimizer, parameter, begin, end) bind(C)
      import
      integer(c_int) :: kolo_optimizer_shard
      type(c_ptr), value :: optimizer
      integer(c_size_t), value :: parameter
      integer(c_int64_t), intent(inout), optional :: begin
      integer(c_int64_t), intent(inout), optional :: end
    end function kolo_optimizer_shard

    function kolo_broadcast_parameters(parameters, count, root, process_set) bind(C)
      import
      integer(c_int) :: kolo_broadcast_parameters
      type(kolo_named_tensor), intent(in), optional :: parameters(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: root
      type(c_ptr), value :: process_set
    end function kolo_broadcast_parameters

    function kolo_require_equal(tensors, count, process_set) bind(C)
      import
      integer(c_int) :: kolo_require_equal
      type(kolo_named_tensor), intent(in), optional :: tensors(*)
      integer(c_size_t), value :: count
      type(c_ptr), value :: process_set
    end function kolo_require_equal

    function kolo_last_checkpoint_fault() bind(C)
      import
      integer(c_int) :: kolo_last_checkpoint_fault
    end function kolo_last_checkpoint_fault

    function kolo_checkpointer_create(options, checkpointer) bind(C)
      import
      integer(c_int) :: kolo_checkpointer_create
      type(kolo_checkpointer_options), intent(in), optional :: options
      type(c_ptr), intent(inout), optional :: checkpointer
    end function kolo_checkpointer_create

    function kolo_checkpointer_free(checkpointer) bind(C)
      import
      integer(c_int) :: kolo_checkpointer_free
      type(c_ptr), value :: checkpointer
    end function kolo_checkpointer_free

    function kolo_checkpointer_save(checkpointer, step, parts, count, options) bind(C)
      import
      integer(c_int) :: kolo_checkpointer_save
      type(c_ptr), value :: checkpointer
      integer(c_int64_t), value :: step
      type(kolo_part), intent(in), optional :: parts(*)
      integer(c_size_t), value :: count
      type(kolo_save_options), intent(in), optional :: options
    end function kolo_checkpointer_save

    function kolo_checkpointer_save_async(checkpointer, step, parts, count, options, &
        saves) bind(C)
      import
      integer(c_int) :: kolo_checkpointer_save_async
      type(c_ptr), value :: checkpointer
      integer(c_int64_t), value :: step
      type(kolo_part), intent(in), optional :: parts(*)
      integer(c_size_t), value :: count
      type(kolo_save_options), intent(in), optional :: options
      integer(c_int), intent(inout), optional :: saves
    end function kolo_checkpointer_save_async

    function kolo_checkpointer_wait(checkpointer) bind(C)
      import
      integer(c_int) :: kolo_checkpointer_wait
      type(c_ptr), value :: checkpointer
    end function kolo_checkpointer_wait

    function kolo_checkpointer_load_latest(checkpointer, checkpoint) bind(C)
      import
      integer(c_int) :: kolo_checkpointer_load_latest
      type(c_ptr), value :: checkpointer
      type(c_ptr), intent(inout), optional :: checkpoint
    end function kolo_checkpointer_load_latest

    function kolo_checkpointer_load_best(checkpointer, checkpoint) bind(C)
      import
      integer(c_int) :: kolo_checkpointer_load_best
      type(c_ptr), value :: checkpointer
      type(c_ptr), intent(inout), optional :: checkpoint
    end function kolo_checkpointer_load_best

    function kolo_checkpoint_load(path, checkpoint) bind(C)
      import
      integer(c_int) :: kolo_checkpoint_load
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), intent(inout), optional :: checkpoint
    end function kolo_checkpoint_load

    function kolo_checkpoint_free(checkpoint) bind(C)
      import
      integer(c_int) :: kolo_checkpoint_free
      type(c_ptr), value :: checkpoint
    end function kolo_checkpoint_free

    function kolo_checkpoint_step(checkpoint, step) bind(C)
      import
      integer(c_int) :: kolo_checkpoint_step
      type(c_ptr), value :: checkpoint
      integer(c_int64_t), intent(inout), optional :: step
    end function kolo_checkpoint_step

    function kolo_checkpoint_ranks(checkpoint, ranks) bind(C)
      import
      integer(c_int) :: kolo_checkpoint_ranks
      type(c_ptr), value :: checkpoint
      integer(c_int), intent(inout), optional :: ranks
    end function kolo_checkpoint_ranks

    function kolo_checkpoint_metric(checkpoint, metric) bind(C)
      import
      integer(c_int) :: kolo_checkpoint_metric
      type(c_ptr), value :: checkpoint
      real(c_double), intent(inout), optional :: metric
    end function kolo_checkpoint_metric

    function kolo_checkpoint_path(checkpoint, text, capacity, length) bind(C)
      import
      integer(c_int) :: kolo_checkpoint_path
      type(c_ptr), value :: checkpoint
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(inout), optional :: length
    end function kolo_checkpoint_path

    function kolo_checkpoint_part(checkpoint, of_rank, name, state) bind(C)
      import
      integer(c_int) :: kolo_checkpoint_part
      type(c_ptr), value :: checkpoint
      integer(c_int), value :: of_rank
      character(kind=c_char), intent(in), optional :: name(*)
      type(c_ptr), intent(inout), optional :: state
    end function kolo_checkpoint_part

    function kolo_state_load(state, tensors, count, options, unmatched) bind(C)
      import
      integer(c_int) :: kolo_state_load
      type(c_ptr), value :: state
      type(kolo_named_tensor), intent(in), optional :: tensors(*)
      integer(c_size_t), value :: count
      type(kolo_load_options), intent(in), optional :: options
      integer(c_size_t), intent(inout), optional :: unmatched
    end function kolo_state_load

    function kolo_state_tensors(state, count) bind(C)
      import
      integer(c_int) :: kolo_state_tensors
      type(c_ptr), value :: state
      integer(c_size_t), intent(inout), optional :: count
    end function kolo_state_tensors

    function kolo_state_tensor_name(state, index, text, capacity, length) bind(C)
      import
      integer(c_int) :: kolo_state_tensor_name
      type(c_ptr), value :: state
      integer(c_size_t), value :: index
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(inout), optional :: length
    end function kolo_state_tensor_name

    function kolo_state_tensor_shape(state, index, dtype, dimensions, shape, capacity) bind(C)
      import
      integer(c_int) :: kolo_state_tensor_shape
      type(c_ptr), value :: state
      integer(c_size_t), value :: index
      integer(c_int), intent(inout), optional :: dtype
      integer(c_int32_t), intent(inout), optional :: dimensions
      integer(c_int64_t), intent(inout), optional :: shape(*)
      integer(c_size_t), value :: capacity
    end function kolo_state_tensor_shape

    function kolo_state_text(state, name, text, capacity, length) bind(C)
      import
      integer(c_int) :: kolo_state_text
      type(c_ptr), value :: state
      character(kind=c_char), intent(in), optional :: name(*)
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(inout), optional :: length
    end function kolo_state_text

    function kolo_state_free(state) bind(C)
      import
      integer(c_int) :: kolo_state_free
      type(c_ptr), value :: state
    end function kolo_state_free

    function kolo_load_safetensors(path, state) bind(C)
      import
      integer(c_int) :: kolo_load_safetensors
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), intent(inout), optional :: state
    end function kolo_load_safetensors

    function kolo_save_safetensors(path, tensors, count, texts, text_count) bind(C)
      import
      integer(c_int) :: kolo_save_safetensors
      character(kind=c_char), intent(in), optional :: path(*)
      type(kolo_named_tensor), intent(in), optional :: tensors(*)
      integer(c_size_t), value :: count
      type(kolo_text), intent(in), optional :: texts(*)
      integer(c_size_t), value :: text_count
    end function kolo_save_safetensors

    function kolo_merge_checkpoint(from, to, part) bind(C)
      import
      integer(c_int) :: kolo_merge_checkpoint
      character(kind=c_char), intent(in), optional :: from(*)
      character(kind=c_char), intent(in), optional :: to(*)
      character(kind=c_char), intent(in), optional :: part(*)
    end function kolo_merge_checkpoint

    function kolo_elastic_create(state) bind(C)
      import
      integer(c_int) :: kolo_elastic_create
      type(c_ptr), intent(inout), optional :: state
    end function kolo_elastic_create

    function kolo_elastic_free(state) bind(C)
      import
      integer(c_int) :: kolo_elastic_free
      type(c_ptr), value :: state
    end function kolo_elastic_free

    function kolo_elastic_add_tensors(state, name, tensors, count) bind(C)
      import
      integer(c_int) :: kolo_elastic_add_tensors
      type(c_ptr), value :: state
      character(kind=c_char), intent(in), optional :: name(*)
      type(kolo_named_tensor), intent(in), optional :: tensors(*)
      integer(c_size_t), value :: count
    end function kolo_elastic_add_tensors

    function kolo_elastic_add_bytes(state, name, memory, bytes) bind(C)
      import
      integer(c_int) :: kolo_elastic_add_bytes
      type(c_ptr), value :: state
      character(kind=c_char), intent(in), optional :: name(*)
      type(c_ptr), value :: memory
      integer(c_size_t), value :: bytes
    end function kolo_elastic_add_bytes

    function kolo_elastic_add_optimizer(state, name, optimizer) bind(C)
      import
      integer(c_int) :: kolo_elastic_add_optimizer
      type(c_ptr), value :: state
      character(kind=c_char), intent(in), optional :: name(*)
      type(c_ptr), value :: optimizer
    end function kolo_elastic_add_optimizer

    function kolo_elastic_add_object(state, name, save, load, user) bind(C)
      import
      integer(c_int) :: kolo_elastic_add_object
      type(c_ptr), value :: state
      character(kind=c_char), intent(in), optional :: name(*)
      type(c_funptr), value :: save
      type(c_funptr), value :: load
      type(c_ptr), value :: user
    end function kolo_elastic_add_object

    function kolo_elastic_on_reset(state, call, user) bind(C)
      import
      integer(c_int) :: kolo_elastic_on_reset
      type(c_ptr), value :: state
      type(c_funptr), value :: call
      type(c_ptr), value :: user
    end function kolo_elastic_on_reset

    function kolo_elastic_commit(state) bind(C)
      import
      integer(c_int) :: kolo_elastic_commit
      type(c_ptr), value :: state
    end function kolo_elastic_commit

    function kolo_elastic_check_membership(state) bind(C)
      import
      integer(c_int) :: kolo_elastic_check_membership
      type(c_ptr), value :: state
    end function kolo_elastic_check_membership

    function kolo_elastic_restore(state) bind(C)
      import
      integer(c_int) :: kolo_elastic_restore
      type(c_ptr), value :: state
    end function kolo_elastic_restore

    function kolo_elastic_sync(state) bind(C)
      import
      integer(c_int) :: kolo_elastic_sync
      type(c_ptr), value :: state
    end function kolo_elastic_sync

    function kolo_elastic_commits(state, commits) bind(C)
      import
      integer(c_int) :: kolo_elastic_commits
      type(c_ptr), value :: state
      integer(c_int64_t), intent(inout), optional :: commits
    end function kolo_elastic_commits

    function kolo_elastic_run(state, train, user) bind(C)
      import
      integer(c_int) :: kolo_elastic_run
      type(c_ptr), value :: state
      type(c_funptr), value :: train
      type(c_ptr), value :: user
    end function kolo_elastic_run

    function kolo_is_elastic() bind(C)
      import
      integer(c_int) :: kolo_is_elastic
    end function kolo_is_elastic

    function kolo_histogram_mean(histogram) bind(C)
      import
      real(c_double) :: kolo_histogram_mean
      type(kolo_histogram), intent(in), optional :: histogram
    end function kolo_histogram_mean

    function kolo_histogram_quantile(histogram, q) bind(C)
      import
      integer(c_int64_t) :: kolo_histogram_quantile
      type(kolo_histogram), intent(in), optional :: histogram
      real(c_double), value :: q
    end function kolo_histogram_quantile

    function kolo_read_statistics(statistics, size) bind(C)
      import
      integer(c_int) :: kolo_read_statistics
      type(kolo_statistics), intent(inout), optional :: statistics
      integer(c_size_t), value :: size
    end function kolo_read_statistics

    function kolo_read_kind_statistics(operation, operations, bytes) bind(C)
      import
      integer(c_int) :: kolo_read_kind_statistics
      character(kind=c_char), intent(in), optional :: operation(*)
      integer(c_int64_t), intent(inout), optional :: operations
      integer(c_int64_t), intent(inout), optional :: bytes
    end function kolo_read_kind_statistics

    function kolo_statistics_text(text, capacity, length) bind(C)
      import
      integer(c_int) :: kolo_statistics_text
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(inout), optional :: length
    end function kolo_statistics_text

    function kolo_start_timeline(path) bind(C)
      import
      integer(c_int) :: kolo_start_timeline
      character(kind=c_char), intent(in), optional :: path(*)
    end function kolo_start_timeline

    function kolo_stop_timeline() bind(C)
      import
      integer(c_int) :: kolo_stop_timeline
    end function kolo_stop_timeline

    function kolo_write_flight_record(path, text, capacity, length) bind(C)
      import
      integer(c_int) :: kolo_write_flight_record
      character(kind=c_char), intent(in), optional :: path(*)
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(inout), optional :: length
    end function kolo_write_flight_record

    function kolo_read_build(build, size) bind(C)
      import
      integer(c_int) :: kolo_read_build
      type(kolo_build), intent(inout), optional :: build
      integer(c_size_t), value :: size
    end function kolo_read_build
  end interface
end module kolo_c
