! SPDX-License-Identifier: Apache-2.0
! Kolo for programs in Fortran: the functions of kolo/c/kolo.h, which the module kolo_c declares,
! and what makes their arguments from those of Fortran. docs/fortran.md is the guide.
module kolo
  use kolo_c
  implicit none
  public

  ! Describes an array for Kolo: set it with `kolo_refer`. It must be a target, and must stay alive
  ! like the array, and unmoved, while Kolo uses it.
  type :: kolo_array
    type(kolo_tensor) :: tensor
    integer(c_int64_t) :: lengths(15) = 0
    character(kind=c_char) :: name(256) = c_null_char
  end type kolo_array

  ! `call kolo_refer(array, values)` describes contiguous `values` of any rank on the CPU. Kolo
  ! counts dimensions from the outermost one, as C does, so the shape is that of Fortran reversed.
  interface kolo_refer
    module procedure refer_to_float, refer_to_double, refer_to_int, refer_to_long
  end interface kolo_refer

  private :: refer_to_float, refer_to_double, refer_to_int, refer_to_long, refer

contains

  ! A string of C: for arguments such as `kolo_optimizer_ready(optimizer, kolo_c_string("weight"))`.
  pure function kolo_c_string(text) result(string)
    character(len=*), intent(in) :: text
    character(kind=c_char) :: string(len(text) + 1)
    integer :: i
    do i = 1, len(text)
      string(i) = text(i:i)
    end do
    string(len(text) + 1) = c_null_char
  end function kolo_c_string

  ! The text of a string of C; empty for null.
  function kolo_string(string) result(text)
    type(c_ptr), intent(in) :: string
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: all(:)
    integer :: i, length
    length = 0
    if (c_associated(string)) then
      call c_f_pointer(string, all, [huge(length)])
      do while (all(length + 1) /= c_null_char)
        length = length + 1
      end do
    end if
    allocate (character(len=length) :: text)
    do i = 1, length
      text(i:i) = all(i)
    end do
  end function kolo_string

  ! The message of the last error of this thread.
  function kolo_message() result(text)
    character(len=:), allocatable :: text
    text = kolo_string(kolo_last_error_message())
  end function kolo_message

  ! Ends the program if a call has failed. The other ranks get KOLO_PEER_LEFT.
  subroutine kolo_check(status)
    use, intrinsic :: iso_fortran_env, only: error_unit
    integer(c_int), intent(in) :: status
    if (status == kolo_ok) return
    write (error_unit, '(4a)') kolo_string(kolo_status_name(status)), ": ", kolo_message()
    error stop 1
  end subroutine kolo_check

  ! The array as a tensor with this name, of at most 255 bytes.
  function kolo_named(array, name) result(named)
    type(kolo_array), intent(inout), target :: array
    character(len=*), intent(in) :: name
    type(kolo_named_tensor) :: named
    if (len(name) >= size(array%name)) error stop "kolo_named: the name is too long"
    array%name(:len(name) + 1) = kolo_c_string(name)
    named%name = c_loc(array%name)
    named%tensor = array%tensor
  end function kolo_named

  subroutine refer(array, data, dtype, lengths)
    type(kolo_array), intent(inout), target :: array
    type(c_ptr), intent(in) :: data
    integer(c_int), intent(in) :: dtype
    integer, intent(in) :: lengths(:)
    integer :: n
    n = size(lengths)
    array%lengths(:n) = lengths(n:1:-1)
    array%tensor%data = data
    array%tensor%dtype = dtype
    array%tensor%device = kolo_device(kolo_cpu, 0)
    array%tensor%dimensions = int(n, c_int32_t)
    array%tensor%shape = c_loc(array%lengths)
  end subroutine refer

  subroutine refer_to_float(array, values)
    type(kolo_array), intent(inout), target :: array
    real(c_float), intent(in), target, contiguous :: values(..)
    call refer(array, c_loc(values), kolo_f32, shape(values))
  end subroutine refer_to_float

  subroutine refer_to_double(array, values)
    type(kolo_array), intent(inout), target :: array
    real(c_double), intent(in), target, contiguous :: values(..)
    call refer(array, c_loc(values), kolo_f64, shape(values))
  end subroutine refer_to_double

  subroutine refer_to_int(array, values)
    type(kolo_array), intent(inout), target :: array
    integer(c_int32_t), intent(in), target, contiguous :: values(..)
    call refer(array, c_loc(values), kolo_i32, shape(values))
  end subroutine refer_to_int

  subroutine refer_to_long(array, values)
    type(kolo_array), intent(inout), target :: array
    integer(c_int64_t), intent(in), target, contiguous :: values(..)
    call refer(array, c_loc(values), kolo_i64, shape(values))
  end subroutine refer_to_long

end module kolo
