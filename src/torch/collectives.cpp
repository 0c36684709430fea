// Collectives out of place, as autograd records them.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "kolo/collectives.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <memory>
#include <utility>

#include "kolo/session.hpp"
#include "kolo/torch/collectives.hpp"
#include "torch/collective_gradients.hpp"
#include "torch/gpu_stream.hpp"
#include "torch/recorded.hpp"
#include "torch/tensor_view.hpp"

namespace kolo {
namespace {

using ::torch::Tensor;
using Rows = std::vector<std::int64_t>;

Tensor result_like(const Tensor& source) {
  return at::empty_like(source, source.options().memory_format(at::MemoryFormat::Contiguous));
}

// Without splits: equal ones. Waits.
Received exchange(const Tensor& source, const Rows* splits, const AlltoallOptions& options) {
  const detail::StreamOf stream(source);
  Received received;
  const Allocator allocate = detail::rows_like(source, received.output);
  const auto note_splits = [&](std::span<const std::int64_t> rows) {
    received.splits.assign(rows.begin(), rows.end());
    return allocate(rows);
  };
  Future<void>(detail::submit_alltoall(detail::view_of(source), splits, note_splits, options))
      .get();
  return received;
}

Received recorded_exchange(const Tensor& tensor, const Rows* splits,
                           const AlltoallOptions& options) {
  const auto received_splits = std::make_shared<Rows>();
  const auto forward = [&](const Tensor& input) {
    Received received = exchange(detail::source_of(input, options.name), splits, options);
    *received_splits = std::move(received.splits);
    return received.output;
  };
  AlltoallOptions back = options;
  back.name = detail::backward_name(options.name);
  const auto backward = [=](const Tensor& gradient) {
    return alltoall(gradient, *received_splits, back).output;
  };
  const Tensor output = detail::recorded(tensor, forward, backward);
  return {output, *received_splits};
}

}  // namespace

Tensor allreduce(const Tensor& tensor, const AllreduceOptions& options) {
  const auto forward = [&](const Tensor& input) {
    const Tensor source = detail::source_of(input, options.name);
    Tensor result = result_like(source);
    const detail::StreamOf stream(source);
    allreduce(ConstTensorView(detail::view_of(source)), detail::view_of(result), options);
    return result;
  };
  AllreduceOptions back = options;
  back.name = detail::backward_name(options.name);
  return detail::recorded(tensor, forward, detail::allreduce_gradient(back));
}

Tensor allgather(const Tensor& tensor, const AllgatherOptions& options) {
  const auto rows = std::make_shared<Rows>();
  const auto forward = [&](const Tensor& input) {
    const Tensor source = detail::source_of(input, options.name);
    Tensor result;
    const detail::StreamOf stream(source);
    *rows = allgather(detail::view_of(source), detail::rows_like(source, result), options);
    return result;
  };
  AllgatherOptions back = options;
  back.name = detail::backward_name(options.name);
  return detail::recorded(tensor, forward,
                          detail::allgather_gradient(back, tensor.sizes().vec(), rows));
}

Tensor broadcast(const Tensor& tensor, int root, const BroadcastOptions& options) {
  const auto forward = [&](const Tensor& input) {
    const Tensor source = detail::source_of(input, options.name);
    Tensor result = result_like(source);
    const detail::StreamOf stream(source);
    broadcast(ConstTensorView(detail::view_of(source)), detail::view_of(result), root, options);
    return result;
  };
  const AllreduceOptions back{.name = detail::backward_name(options.name),
                              .op = ReduceOp::sum,
                              .process_set = options.process_set};
  return detail::recorded(tensor, forward, [=](const Tensor& gradient) {
    const Tensor sum_of_all = allreduce(gradient, back);
    return rank() == root ? sum_of_all : at::zeros_like(sum_of_all);
  });
}

Received alltoall(const Tensor& tensor, const std::vector<std::int64_t>& splits,
                  const AlltoallOptions& options) {
  return recorded_exchange(tensor, &splits, options);
}

Received alltoall(const Tensor& tensor, const AlltoallOptions& options) {
  return recorded_exchange(tensor, nullptr, options);
}

Tensor reducescatter(const Tensor& tensor, const ReducescatterOptions& options) {
  const auto forward = [&](const Tensor& input) {
    return reducescatter_async(input, options).get();
  };
  ReducescatterOptions back = options;
  back.name = detail::backward_name(options.name);
  return detail::recorded(tensor, forward, detail::reducescatter_gradient(back));
}

}  // namespace kolo
