! SPDX-License-Identifier: Apache-2.0
! The types of Fortran have the sizes that their defaults say, and Kolo accepts these.
program defaults
  use kolo
  implicit none
  type(kolo_collective_options) :: collective
  type(kolo_reduce_options) :: reduction
  type(kolo_optimizer_options) :: optimizer
  type(kolo_checkpointer_options) :: checkpointer
  type(kolo_save_options) :: save
  type(kolo_load_options) :: load
  type(kolo_statistics) :: statistics
  type(kolo_array), target :: array
  type(kolo_named_tensor) :: parameters(0)
  type(c_ptr) :: handle
  integer(c_int32_t), target :: matrix(4, 3)

  call require(collective%size == c_sizeof(collective), "kolo_collective_options")
  call require(reduction%size == c_sizeof(reduction), "kolo_reduce_options")
  call require(optimizer%size == c_sizeof(optimizer), "kolo_optimizer_options")
  call require(checkpointer%size == c_sizeof(checkpointer), "kolo_checkpointer_options")
  call require(save%size == c_sizeof(save), "kolo_save_options")
  call require(load%size == c_sizeof(load), "kolo_load_options")
  call require(kolo_refers(), "the shape of a matrix")
  ! Refused for other reasons: there is no session, and there is no directory.
  call kolo_refer(array, matrix)
  call require(kolo_allreduce(array%tensor, reduction) == kolo_not_initialized, kolo_message())
  call require(kolo_barrier(collective) == kolo_not_initialized, kolo_message())
  call require(kolo_optimizer_create([kolo_named(array, "m")], 1_c_size_t, parameters, &
                                     0_c_size_t, optimizer, handle) == kolo_not_initialized, &
               kolo_message())
  call require(kolo_checkpointer_create(checkpointer, handle) == kolo_invalid_argument, "a directory")
  call require(index(kolo_message(), "`directory` is null") > 0, kolo_message())
  call require(kolo_read_statistics(statistics, c_sizeof(statistics)) == kolo_not_initialized, &
               kolo_message())
  call require(kolo_string(kolo_status_name(kolo_mismatch)) == "KOLO_MISMATCH", "a string of C")
  print '(a)', "all defaults are right"

contains

  subroutine require(is_true, what)
    logical, intent(in) :: is_true
    character(len=*), intent(in) :: what
    if (is_true) return
    print '(2a)', "not right: ", what
    error stop 1
  end subroutine require

  logical function kolo_refers()
    call kolo_refer(array, matrix)
    kolo_refers = array%tensor%dimensions == 2 .and. all(array%lengths(:2) == [3, 4]) .and. &
                  array%tensor%dtype == kolo_i32
  end function kolo_refers

end program defaults
