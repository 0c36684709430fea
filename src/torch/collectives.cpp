// Collectives out of place, as autograd records them.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "kolo/collectives.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <memory>
#include <numeric>
#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/collectives.hpp"
#include "torch/recorded.hpp"
#include "torch/tensor_view.hpp"

namespace kolo {
namespace {

using ::torch::Tensor;
using Rows = std::vector<std::int64_t>;

// Of the operation in backward.
std::string backward_name(const std::string& name) {
  return name.empty() ? name : name + ".backward";
}

// The tensor's elements in row-major order, to be read.
Tensor source_of(const Tensor& tensor, const std::string& name) {
  detail::require_supported(tensor, name);
  return tensor.detach().contiguous();
}

Tensor result_like(const Tensor& source) {
  return at::empty_like(source, source.options().memory_format(at::MemoryFormat::Contiguous));
}

void require_gradient(ReduceOp op, const std::string& name) {
  if (op == ReduceOp::average || op == ReduceOp::sum) return;
  throw InvalidArgument(
      "'" + name + "': there is no gradient of a reduction by " + std::string(to_string(op)), name);
}

std::int64_t sum(const Rows& rows, std::size_t count) {
  return std::accumulate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count),
                         std::int64_t{0});
}

// Without splits: equal ones. Waits.
Received exchange(const Tensor& source, const Rows* splits, const AlltoallOptions& options) {
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
    Received received = exchange(source_of(input, options.name), splits, options);
    *received_splits = std::move(received.splits);
    return received.output;
  };
  AlltoallOptions back = options;
  back.name = backward_name(options.name);
  const auto backward = [=](const Tensor& gradient) {
    return alltoall(gradient, *received_splits, back).output;
  };
  const Tensor output = detail::recorded(tensor, forward, backward);
  return {output, *received_splits};
}

}  // namespace

Tensor allreduce(const Tensor& tensor, const AllreduceOptions& options) {
  const auto forward = [&](const Tensor& input) {
    const Tensor source = source_of(input, options.name);
    Tensor result = result_like(source);
    allreduce(ConstTensorView(detail::view_of(source)), detail::view_of(result), options);
    return result;
  };
  AllreduceOptions back = options;
  back.name = backward_name(options.name);
  return detail::recorded(tensor, forward, [back](const Tensor& gradient) {
    require_gradient(back.op, back.name);
    return allreduce(gradient, back);
  });
}

std::vector<Tensor> grouped_allreduce(const std::vector<Tensor>& tensors,
                                      const GroupedAllreduceOptions& options) {
  std::vector<Tensor> results = grouped_allreduce_async(tensors, options).get();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string name =
        options.name.empty() ? "" : backward_name(options.name) + "." + std::to_string(i);
    const AllreduceOptions back{name,
                                options.op,
                                options.prescale,
                                options.postscale,
                                options.compression,
                                options.average_over,
                                options.process_set};
    results[i] = detail::recorded(
        tensors[i], [&](const Tensor&) { return results[i]; },
        [back](const Tensor& gradient) {
          require_gradient(back.op, back.name);
          return allreduce(gradient, back);
        });
  }
  return results;
}

Tensor allgather(const Tensor& tensor, const AllgatherOptions& options) {
  const auto rows = std::make_shared<Rows>();
  const auto forward = [&](const Tensor& input) {
    const Tensor source = source_of(input, options.name);
    Tensor result;
    *rows = allgather(detail::view_of(source), detail::rows_like(source, result), options);
    return result;
  };
  const AllreduceOptions back{
      .name = backward_name(options.name), .op = ReduceOp::sum, .process_set = options.process_set};
  const auto backward = [=, shape = tensor.sizes().vec()](const Tensor& gradient) {
    const auto place = static_cast<std::size_t>(back.process_set.rank());
    const Tensor sum_of_all = allreduce(gradient, back);
    return sum_of_all.narrow(0, sum(*rows, place), rows->at(place)).reshape(shape);
  };
  return detail::recorded(tensor, forward, backward);
}

Tensor broadcast(const Tensor& tensor, int root, const BroadcastOptions& options) {
  const auto forward = [&](const Tensor& input) {
    const Tensor source = source_of(input, options.name);
    Tensor result = result_like(source);
    broadcast(ConstTensorView(detail::view_of(source)), detail::view_of(result), root, options);
    return result;
  };
  const AllreduceOptions back{
      .name = backward_name(options.name), .op = ReduceOp::sum, .process_set = options.process_set};
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
  const AllgatherOptions back{backward_name(options.name), options.process_set};
  const auto backward = [back, op = options.op,
                         scale = options.prescale * options.postscale](const Tensor& gradient) {
    require_gradient(op, back.name);
    const double divisor = op == ReduceOp::average ? back.process_set.size() : 1.0;
    return allgather(gradient, back) * (scale / divisor);
  };
  return detail::recorded(tensor, forward, backward);
}

}  // namespace kolo
