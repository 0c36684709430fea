! SPDX-License-Identifier: Apache-2.0
! The ranks in Fortran of a job whose ranks are in several languages: see program.cpp.
program languages
  use kolo
  implicit none
  integer, parameter :: values_count = 100
  integer(c_int) :: me, n
  character(kind=c_char), target :: names(10, 5)

  interface
    subroutine free(memory) bind(C)
      import
      type(c_ptr), value :: memory
    end subroutine free
  end interface

  block
    type(kolo_setting) :: quiet
    character(kind=c_char), target :: setting(20), word(4)
    setting(:) = kolo_c_string("flight_recorder_dir")
    word(:) = kolo_c_string("off")
    quiet = kolo_setting(c_loc(setting), c_loc(word))
    call kolo_check(kolo_init(0, c_null_ptr, [quiet], 1_c_size_t))
  end block
  call kolo_check(kolo_rank(me))
  call kolo_check(kolo_size(n))
  names(:, 1) = padded("gradient")
  names(:, 2) = padded("first")
  names(:, 3) = padded("second")
  names(:, 4) = padded("weights")
  names(:, 5) = padded("start")
  call reduce
  call move
  call use_sets_and_requests
  call make_mistakes
  call kolo_check(kolo_shutdown())

contains

  function padded(text) result(name)
    character(len=*), intent(in) :: text
    character(kind=c_char) :: name(10)
    name = c_null_char
    name(:len(text)) = kolo_c_string(text)
  end function padded

  ! Prints the line in one piece, beside the other ranks'.
  subroutine print_line(line)
    use, intrinsic :: iso_fortran_env, only: output_unit
    character(len=*), intent(in) :: line
    write (output_unit, '(a)') line
    flush (output_unit)
  end subroutine print_line

  subroutine print_bits(name, memory, bytes)
    character(len=*), intent(in) :: name
    type(c_ptr), intent(in) :: memory
    integer, intent(in) :: bytes
    character(len=*), parameter :: digits = "0123456789abcdef"
    integer(c_int8_t), pointer :: all(:)
    character(len=2*bytes) :: text
    integer :: i, byte
    call c_f_pointer(memory, all, [bytes])
    do i = 1, bytes
      byte = iand(int(all(i)), 255)
      text(2*i - 1:2*i - 1) = digits(byte/16 + 1:byte/16 + 1)
      text(2*i:2*i) = digits(mod(byte, 16) + 1:mod(byte, 16) + 1)
    end do
    call print_line("bits of "//name//": "//text)
  end subroutine print_bits

  subroutine print_error(wanted, kind, status)
    integer(c_int), intent(in) :: wanted, status
    character(len=*), intent(in) :: kind
    integer(c_int), pointer :: ranks(:)
    type(c_ptr) :: memory
    integer(c_size_t) :: known
    character(len=200) :: list
    if (status /= wanted) then
      call print_line("no error")
      return
    end if
    known = kolo_last_error_ranks(memory)
    call c_f_pointer(memory, ranks, [known])
    write (list, '(*(1x, i0))') ranks
    call print_line("error "//kind//" of '"//kolo_string(kolo_last_error_tensor())//"', ranks"// &
                    trim(list)//": "//kolo_message())
  end subroutine print_error

  function make_values() result(values)
    real(c_float) :: values(values_count)
    integer :: i
    values = [(1.0_c_float / (3.0_c_float * real(i, c_float) + real(me, c_float) + 1.0_c_float), &
               i = 0, values_count - 1)]
  end function make_values

  subroutine reduce
    real(c_float), target :: values(values_count)
    real(c_double), target :: doubles(7)
    integer(c_int32_t), target :: integers(5)
    type(kolo_array), target :: tensor, group(2)
    type(kolo_reduce_options) :: options
    integer :: i
    call kolo_refer(tensor, values)
    values = make_values()
    options%name = c_loc(names(1, 1))
    call kolo_check(kolo_allreduce(tensor%tensor, options))
    call print_bits("allreduce", c_loc(values), 4 * size(values))
    values = make_values()
    options%name = c_null_ptr
    options%op = kolo_sum
    options%prescale = 0.5
    options%compression = kolo_compression_bf16
    call kolo_check(kolo_allreduce(tensor%tensor, options))
    call print_bits("compressed allreduce", c_loc(values), 4 * size(values))
    doubles = [(1.0_c_double / (i + me + 2), i = 0, 6)]
    integers = [(i * (me + 1), i = 0, 4)]
    call kolo_refer(group(1), doubles)
    call kolo_refer(group(2), integers)
    options%prescale = 1.0
    options%compression = kolo_compression_none
    call kolo_check(kolo_grouped_allreduce(group%tensor, 2_c_size_t, options))
    call print_bits("group's doubles", c_loc(doubles), 8 * size(doubles))
    call print_bits("group's integers", c_loc(integers), 4 * size(integers))
  end subroutine reduce

  ! Prints the rows of all ranks, of which this one has `rows`.
  subroutine print_gathered(name, tensor, rows, row_bytes)
    character(len=*), intent(in) :: name
    type(kolo_array), intent(inout) :: tensor
    integer, intent(in) :: rows, row_bytes
    type(c_ptr), target :: gathered
    integer(c_int64_t) :: all(n)
    tensor%lengths(1) = rows
    gathered = c_null_ptr
    call kolo_check(kolo_allgather(tensor%tensor, c_funloc(kolo_allocate), c_loc(gathered), all))
    call print_bits(name, gathered, int(sum(all)) * row_bytes)
    call free(gathered)
  end subroutine print_gathered

  subroutine move
    real(c_float), target :: values(values_count), received(values_count)
    integer(c_int64_t), target :: sent(2 * n)
    integer(c_int64_t), pointer :: exchanged(:)
    type(kolo_array), target :: tensor, output
    type(kolo_reduce_options) :: sum_of_ranks
    type(c_ptr), target :: memory
    integer :: rows, i
    values = make_values()
    call kolo_refer(tensor, values)
    call print_gathered("allgather", tensor, me + 1, 4)
    call kolo_refer(tensor, values)
    call kolo_refer(output, received)
    received = values
    call kolo_check(kolo_broadcast(output%tensor, n - 1))
    call print_bits("broadcast", c_loc(received), 4 * size(received))
    rows = int(kolo_reducescatter_rows(int(values_count, c_int64_t), me, n))
    output%lengths(1) = rows
    sum_of_ranks%op = kolo_sum
    call kolo_check(kolo_reducescatter(tensor%tensor, output%tensor, sum_of_ranks))
    call print_gathered("reducescatter", output, rows, 4)
    sent = [(100 * me + i, i = 0, 2 * n - 1)]
    call kolo_refer(tensor, sent)
    memory = c_null_ptr
    call kolo_check(kolo_alltoall(tensor%tensor, members=0_c_size_t, &
                                  allocate=c_funloc(kolo_allocate), user=c_loc(memory)))
    call c_f_pointer(memory, exchanged, [2 * n])
    call kolo_refer(tensor, exchanged)
    call print_gathered("alltoall", tensor, 2 * n, 8)
    call free(memory)
  end subroutine move

  subroutine use_sets_and_requests
    integer(c_int), parameter :: ops(2) = [kolo_product, kolo_min]
    real(c_float), target :: values(values_count), both(values_count, 2)
    type(kolo_array), target :: tensor, one(2)
    type(kolo_reduce_options) :: options
    type(c_ptr) :: set, requests(2)
    integer :: rank, i, k
    values = make_values()
    call kolo_refer(tensor, values)
    associate (even => [(rank, rank = 0, n - 1, 2)])
      call kolo_check(kolo_process_set_add(even, size(even, kind=c_size_t), set))
    end associate
    options%op = kolo_max
    options%process_set = set
    if (mod(me, 2) == 0) call kolo_check(kolo_allreduce(tensor%tensor, options))
    call kolo_check(kolo_broadcast(tensor%tensor, 0))
    call print_bits("set of even ranks", c_loc(values), 4 * size(values))
    options%process_set = c_null_ptr
    do i = 1, 2 ! in another order on each second rank
      k = mod(i - 1 + me, 2) + 1
      both(:, k) = make_values()
      call kolo_refer(one(k), both(:, k))
      options%name = c_loc(names(1, k + 1))
      options%op = ops(k)
      call kolo_check(kolo_allreduce_async(one(k)%tensor, options, requests(i)))
    end do
    do i = 1, 2
      call kolo_check(kolo_request_wait(requests(i)))
      call kolo_check(kolo_request_free(requests(i)))
    end do
    call print_bits("first request", c_loc(both(1, 1)), 4 * values_count)
    call print_bits("second request", c_loc(both(1, 2)), 4 * values_count)
    call kolo_check(kolo_process_set_free(set))
  end subroutine use_sets_and_requests

  subroutine make_mistakes
    real(c_float), target :: values(values_count)
    character(kind=c_char), target :: missed(7)
    type(kolo_array), target :: tensor
    type(kolo_reduce_options) :: options
    type(kolo_collective_options) :: start
    values = make_values()
    call kolo_refer(tensor, values)
    if (me == 1) tensor%lengths(1) = values_count - 1
    options%name = c_loc(names(1, 4))
    call print_error(kolo_mismatch, "Mismatch", kolo_allreduce(tensor%tensor, options))
    tensor%lengths(1) = values_count
    start%name = c_loc(names(1, 5))
    call print_error(kolo_mismatch, "Mismatch", &
                     kolo_broadcast(tensor%tensor, merge(1, 0, me == 1), start))
    if (me == n - 1) return
    missed = kolo_c_string("missed")
    options%name = c_loc(missed)
    call print_error(kolo_peer_left, "PeerLeft", kolo_allreduce(tensor%tensor, options))
  end subroutine make_mistakes

end program languages
