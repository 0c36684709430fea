// SPDX-License-Identifier: Apache-2.0
// Implements kolo/c/collectives.h and kolo/c/grouped.h.
#include "kolo/collectives.hpp"

#include <span>
#include <vector>

#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "c/handles.hpp"
#include "kolo/c/collectives.h"
#include "kolo/c/grouped.h"

namespace kolo::internal::c {
namespace {

/// Submits the operation of `arguments`. Waits for it if `request` is null, else sets `*request`.
template <typename Arguments>
void run(const Arguments& arguments, kolo_request** request) {
  if (request == nullptr) return detail::call(arguments);
  *request = Handles<kolo_request>::all().add(detail::call_async(arguments));
}

/// The place for the request of an asynchronous call. Checked before anything is submitted.
kolo_request** checked(kolo_request** request, const char* function) {
  return &not_null(request, function, "request");
}

// The functions of C, which name themselves for messages. A null `request`: the synchronous form.

void allreduce(const kolo_tensor* input, const kolo_tensor* output,
               const kolo_reduce_options* options, kolo_request** request, const char* function) {
  const AllreduceOptions converted = allreduce_options(options, function);
  const TensorView to = tensor_of(output, function, input == output ? "tensor" : "output");
  if (input == output) return run(detail::AllreduceCall{to, to, converted}, request);
  run(detail::AllreduceCall{tensor_of(input, function, "input"), to, converted}, request);
}

void grouped_allreduce(const kolo_tensor* tensors, std::size_t count,
                       const kolo_reduce_options* options, kolo_request** request,
                       const char* function) {
  const GroupedAllreduceOptions converted = grouped_options(options, function);
  run(detail::GroupedAllreduceCall{tensors_of(tensors, count, function, "tensors"), converted},
      request);
}

void reducescatter(const kolo_tensor* inputs, const kolo_tensor* outputs, std::size_t count,
                   const kolo_reduce_options* options, kolo_request** request,
                   const char* function) {
  const ReducescatterOptions converted = reducescatter_options(options, function);
  const std::vector<TensorView> from = tensors_of(inputs, count, function, "input");
  const std::vector<ConstTensorView> read(from.begin(), from.end());
  run(detail::ReducescatterCall{read, tensors_of(outputs, count, function, "output"), converted},
      request);
}

void allgather(const kolo_tensor* tensors, std::size_t count, kolo_allocator allocate,
               void* const* users, std::int64_t* rows, const kolo_collective_options* options,
               kolo_request** request, const char* function) {
  const auto converted = collective_options<AllgatherOptions>(options, function);
  const std::vector<TensorView> views = tensors_of(tensors, count, function, "tensor");
  const std::vector<ConstTensorView> read(views.begin(), views.end());
  std::vector<Allocator> allocators;
  const auto members = static_cast<std::size_t>(rows == nullptr ? 0 : converted.process_set.size());
  for (std::size_t i = 0; i < count; ++i)
    allocators.push_back(allocator_of(allocate, users == nullptr ? nullptr : users[i], views[i],
                                      rows == nullptr ? nullptr : rows + i * members));
  run(detail::AllgatherCall{read, allocators, converted}, request);
}

void broadcast(const kolo_tensor* input, const kolo_tensor* output, int root,
               const kolo_collective_options* options, kolo_request** request,
               const char* function) {
  const auto converted = collective_options<BroadcastOptions>(options, function);
  const TensorView to = tensor_of(output, function, input == output ? "tensor" : "output");
  const TensorView from = input == output ? to : tensor_of(input, function, "input");
  run(detail::BroadcastCall{from, to, root, converted}, request);
}

/// The rows of an alltoall.
struct Rows {
  const std::int64_t* sent;  // null: the same number for each member
  std::size_t members;
  std::int64_t* received;
};

void alltoall(const kolo_tensor* tensor, Rows rows, kolo_allocator allocate, void* user,
              const kolo_collective_options* options, kolo_request** request,
              const char* function) {
  const auto converted = collective_options<AlltoallOptions>(options, function);
  const TensorView view = tensor_of(tensor, function, "tensor");
  require_array(rows.sent, rows.members, function, "counts");
  const std::vector<std::int64_t> counts(rows.sent, rows.sent + rows.members);
  const Allocator allocator = allocator_of(allocate, user, view, rows.received);
  run(detail::AlltoallCall{view, rows.sent == nullptr ? nullptr : &counts, allocator, converted},
      request);
}

}  // namespace

extern "C" {

KOLO_C_EXPORT kolo_status kolo_allreduce(const kolo_tensor* tensor,
                                         const kolo_reduce_options* options) {
  return guarded([&] { allreduce(tensor, tensor, options, nullptr, "kolo_allreduce"); });
}

KOLO_C_EXPORT kolo_status kolo_allreduce_async(const kolo_tensor* tensor,
                                               const kolo_reduce_options* options,
                                               kolo_request** request) {
  const char* const function = __func__;
  return guarded([&] { allreduce(tensor, tensor, options, checked(request, function), function); });
}

KOLO_C_EXPORT kolo_status kolo_allreduce_into(const kolo_tensor* input, const kolo_tensor* output,
                                              const kolo_reduce_options* options) {
  return guarded([&] { allreduce(input, output, options, nullptr, "kolo_allreduce_into"); });
}

KOLO_C_EXPORT kolo_status kolo_allreduce_into_async(const kolo_tensor* input,
                                                    const kolo_tensor* output,
                                                    const kolo_reduce_options* options,
                                                    kolo_request** request) {
  const char* const function = __func__;
  return guarded([&] { allreduce(input, output, options, checked(request, function), function); });
}

KOLO_C_EXPORT int64_t kolo_reducescatter_rows(int64_t rows, int index, int size) {
  return size <= 0 ? -1 : reducescatter_rows(rows, index, size);
}

KOLO_C_EXPORT kolo_status kolo_reducescatter(const kolo_tensor* input, const kolo_tensor* output,
                                             const kolo_reduce_options* options) {
  return guarded([&] { reducescatter(input, output, 1, options, nullptr, "kolo_reducescatter"); });
}

KOLO_C_EXPORT kolo_status kolo_reducescatter_async(const kolo_tensor* input,
                                                   const kolo_tensor* output,
                                                   const kolo_reduce_options* options,
                                                   kolo_request** request) {
  const char* const function = __func__;
  return guarded(
      [&] { reducescatter(input, output, 1, options, checked(request, function), function); });
}

KOLO_C_EXPORT kolo_status kolo_allgather(const kolo_tensor* tensor, kolo_allocator allocate,
                                         void* user, int64_t* rows,
                                         const kolo_collective_options* options) {
  return guarded(
      [&] { allgather(tensor, 1, allocate, &user, rows, options, nullptr, "kolo_allgather"); });
}

KOLO_C_EXPORT kolo_status kolo_allgather_async(const kolo_tensor* tensor, kolo_allocator allocate,
                                               void* user, int64_t* rows,
                                               const kolo_collective_options* options,
                                               kolo_request** request) {
  const char* const function = __func__;
  return guarded([&] {
    allgather(tensor, 1, allocate, &user, rows, options, checked(request, function), function);
  });
}

KOLO_C_EXPORT kolo_status kolo_broadcast(const kolo_tensor* tensor, int root,
                                         const kolo_collective_options* options) {
  return guarded([&] { broadcast(tensor, tensor, root, options, nullptr, "kolo_broadcast"); });
}

KOLO_C_EXPORT kolo_status kolo_broadcast_async(const kolo_tensor* tensor, int root,
                                               const kolo_collective_options* options,
                                               kolo_request** request) {
  const char* const function = __func__;
  return guarded(
      [&] { broadcast(tensor, tensor, root, options, checked(request, function), function); });
}

KOLO_C_EXPORT kolo_status kolo_broadcast_into(const kolo_tensor* input, const kolo_tensor* output,
                                              int root, const kolo_collective_options* options) {
  return guarded([&] { broadcast(input, output, root, options, nullptr, "kolo_broadcast_into"); });
}

KOLO_C_EXPORT kolo_status kolo_broadcast_into_async(const kolo_tensor* input,
                                                    const kolo_tensor* output, int root,
                                                    const kolo_collective_options* options,
                                                    kolo_request** request) {
  const char* const function = __func__;
  return guarded(
      [&] { broadcast(input, output, root, options, checked(request, function), function); });
}

KOLO_C_EXPORT kolo_status kolo_alltoall(const kolo_tensor* tensor, const int64_t* counts,
                                        size_t members, kolo_allocator allocate, void* user,
                                        int64_t* rows, const kolo_collective_options* options) {
  return guarded([&] {
    alltoall(tensor, {counts, members, rows}, allocate, user, options, nullptr, "kolo_alltoall");
  });
}

KOLO_C_EXPORT kolo_status kolo_alltoall_async(const kolo_tensor* tensor, const int64_t* counts,
                                              size_t members, kolo_allocator allocate, void* user,
                                              int64_t* rows, const kolo_collective_options* options,
                                              kolo_request** request) {
  const char* const function = __func__;
  return guarded([&] {
    alltoall(tensor, {counts, members, rows}, allocate, user, options, checked(request, function),
             function);
  });
}

KOLO_C_EXPORT kolo_status kolo_barrier(const kolo_collective_options* options) {
  return guarded(
      [&] { kolo::barrier(collective_options<BarrierOptions>(options, "kolo_barrier")); });
}

KOLO_C_EXPORT kolo_status kolo_barrier_async(const kolo_collective_options* options,
                                             kolo_request** request) {
  const char* const function = __func__;
  return guarded([&] {
    const auto converted = collective_options<BarrierOptions>(options, function);
    run(detail::BarrierCall{converted}, checked(request, function));
  });
}

KOLO_C_EXPORT kolo_status kolo_join(int* last_rank) {
  return guarded([&] {
    const int last = kolo::join();
    if (last_rank != nullptr) *last_rank = last;
  });
}

KOLO_C_EXPORT kolo_status kolo_join_async(int* last_rank, kolo_request** request) {
  const char* const function = __func__;
  return guarded([&] {
    run(detail::JoinCall{not_null(last_rank, function, "last_rank")}, checked(request, function));
  });
}

KOLO_C_EXPORT kolo_status kolo_grouped_allreduce(const kolo_tensor* tensors, size_t count,
                                                 const kolo_reduce_options* options) {
  const char* const function = __func__;
  return guarded([&] { grouped_allreduce(tensors, count, options, nullptr, function); });
}

KOLO_C_EXPORT kolo_status kolo_grouped_allreduce_async(const kolo_tensor* tensors, size_t count,
                                                       const kolo_reduce_options* options,
                                                       kolo_request** request) {
  const char* const function = __func__;
  return guarded(
      [&] { grouped_allreduce(tensors, count, options, checked(request, function), function); });
}

KOLO_C_EXPORT kolo_status kolo_grouped_reducescatter(const kolo_tensor* inputs,
                                                     const kolo_tensor* outputs, size_t count,
                                                     const kolo_reduce_options* options) {
  const char* const function = __func__;
  return guarded([&] { reducescatter(inputs, outputs, count, options, nullptr, function); });
}

KOLO_C_EXPORT kolo_status kolo_grouped_reducescatter_async(const kolo_tensor* inputs,
                                                           const kolo_tensor* outputs, size_t count,
                                                           const kolo_reduce_options* options,
                                                           kolo_request** request) {
  const char* const function = __func__;
  return guarded([&] {
    reducescatter(inputs, outputs, count, options, checked(request, function), function);
  });
}

KOLO_C_EXPORT kolo_status kolo_grouped_allgather(const kolo_tensor* tensors, size_t count,
                                                 kolo_allocator allocate, void* const* users,
                                                 int64_t* rows,
                                                 const kolo_collective_options* options) {
  const char* const function = __func__;
  return guarded(
      [&] { allgather(tensors, count, allocate, users, rows, options, nullptr, function); });
}

KOLO_C_EXPORT kolo_status kolo_grouped_allgather_async(const kolo_tensor* tensors, size_t count,
                                                       kolo_allocator allocate, void* const* users,
                                                       int64_t* rows,
                                                       const kolo_collective_options* options,
                                                       kolo_request** request) {
  const char* const function = __func__;
  return guarded([&] {
    allgather(tensors, count, allocate, users, rows, options, checked(request, function), function);
  });
}

}  // extern "C"

}  // namespace kolo::internal::c
