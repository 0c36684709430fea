! SPDX-License-Identifier: Apache-2.0
! Trains a linear model on any number of ranks: each takes its share of the examples of a step. The
! result does not depend on the number of ranks, except for rounding.
program train
  use kolo
  implicit none
  integer, parameter :: inputs = 8, outputs = 3, batch = 96, steps = 400
  real(c_double), target :: weights(inputs, outputs) = 0, gradients(inputs, outputs)
  real(c_double), target :: loss
  type(kolo_array), target :: weight_array, gradient_array, loss_array
  type(kolo_optimizer_options) :: options
  type(kolo_reduce_options) :: sum_of_ranks
  type(c_ptr) :: optimizer
  real(c_double) :: input(inputs), error(outputs)
  integer(c_int) :: rank, ranks
  integer :: step, i

  call kolo_check(kolo_init(0, c_null_ptr, count=0_c_size_t))
  call kolo_check(kolo_rank(rank))
  call kolo_check(kolo_size(ranks))
  call kolo_refer(weight_array, weights)
  call kolo_refer(gradient_array, gradients)
  call kolo_refer(loss_array, loss)
  options%op = kolo_sum
  sum_of_ranks%op = kolo_sum
  call kolo_check(kolo_optimizer_create([kolo_named(gradient_array, "weights")], 1_c_size_t, &
                                        [kolo_named(weight_array, "weights")], 1_c_size_t, &
                                        options, optimizer))
  call kolo_check(kolo_broadcast_parameters([kolo_named(weight_array, "weights")], 1_c_size_t, &
                                            0, c_null_ptr))
  do step = 1, steps
    gradients = 0
    loss = 0
    do i = rank, batch - 1, ranks ! this rank's examples
      call example(step * batch + i, input, error)
      error = matmul(input, weights) - error
      loss = loss + dot_product(error, error) / batch
      gradients = gradients + spread(input, 2, outputs) * spread(error, 1, inputs) / batch
    end do
    call kolo_check(kolo_optimizer_begin_step(optimizer)) ! sums the ranks' gradients
    weights = weights - 0.05d0 * gradients
    call kolo_check(kolo_optimizer_end_step(optimizer))
    call kolo_check(kolo_allreduce(loss_array%tensor, sum_of_ranks))
    if (rank == 0 .and. mod(step, 100) == 0) &
      print '(a, i0, a, es9.3)', "step ", step, ": loss ", loss
  end do
  call kolo_check(kolo_optimizer_free(optimizer))
  call kolo_check(kolo_shutdown())

contains

  ! An input, and the output of the model to be found.
  subroutine example(number, input, output)
    integer, intent(in) :: number
    real(c_double), intent(out) :: input(inputs), output(outputs)
    integer :: j
    do j = 1, inputs
      input(j) = sin(real(number * (j + 1), c_double))
    end do
    do j = 1, outputs
      output(j) = sum(input(j:j + 5)) - j * input(1)
    end do
  end subroutine example

end program train
