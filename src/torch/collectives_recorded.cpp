// SPDX-License-Identifier: Apache-2.0
// The collectives that autograd records: synchronous ones out of place. A group is one operation in
// forward. In backward, each tensor that requires a gradient has an operation of its own.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "kolo/collectives.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/collectives.hpp"
#include "torch/tensor_view.hpp"

namespace kolo {

using namespace internal;
namespace {

using ::torch::Tensor;
using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;
using Tensors = std::vector<Tensor>;
using RowCounts = std::vector<std::int64_t>;
using TensorFunction = std::function<Tensor(const Tensor&)>;

struct Backward : ::torch::CustomClassHolder {
  explicit Backward(TensorFunction function_of_gradient)
      : function(std::move(function_of_gradient)) {}
  TensorFunction function;
};

struct Recorded : ::torch::autograd::Function<Recorded> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const TensorFunction& forward, const TensorFunction& backward) {
    context->saved_data["backward"] =
        c10::IValue::make_capsule(c10::make_intrusive<Backward>(backward));
    return forward(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["backward"].toCapsule();
    const auto& function = static_cast<const Backward&>(*capsule).function;
    return {function(gradients.front()), {}, {}};
  }
};

// Returns `forward(input)`, called with gradients disabled. If the input requires a gradient, the
// call is recorded: `backward` computes the input's gradient from the result's. If `backward` calls
// recorded functions, second derivatives work too.
Tensor recorded(const Tensor& input, const TensorFunction& forward,
                const TensorFunction& backward) {
  if (at::GradMode::is_enabled() && input.requires_grad()) {
    return Recorded::apply(input, forward, backward);
  }
  const at::NoGradGuard no_grad;
  return forward(input);
}

// Records a member of a group. `result` is the result of the group's operation for `tensor`.
Tensor recorded_member(const Tensor& tensor, const Tensor& result, const TensorFunction& backward) {
  return recorded(
      tensor, [&result](const Tensor&) { return result; }, backward);
}

// The options of the operation in backward. Each member of a group has an operation of its own.
template <typename Options, typename... Member>
Options backward_options(Options options, Member... member) {
  if (!options.name.empty()) options.name += (".backward" + ... + ('.' + std::to_string(member)));
  return options;
}

// The next functions make the gradients of operations. `back` holds the options for backward.

void require_gradient(ReduceOp op, const std::string& name) {
  if (op == ReduceOp::average || op == ReduceOp::sum) return;
  throw InvalidArgument(
      "'" + name + "': there is no gradient of a reduction by " + std::string(to_string(op)), name);
}

TensorFunction allreduce_gradient(const AllreduceOptions& back) {
  return [back](const Tensor& gradient) {
    require_gradient(back.op, back.name);
    return allreduce(gradient, back);
  };
}

// Sums the gradients of all ranks, and takes the rows that this rank contributed. `shape` is the
// shape of this rank's input. `rows` holds the number of rows from each member of the set, known
// when backward runs.
TensorFunction allgather_gradient(const AllgatherOptions& back, const RowCounts& shape,
                                  std::shared_ptr<const RowCounts> rows) {
  const AllreduceOptions sum{
      .name = back.name, .op = ReduceOp::sum, .process_set = back.process_set};
  return [sum, shape, rows = std::move(rows)](const Tensor& gradient) {
    const int place = sum.process_set.rank();
    const std::int64_t before =
        std::accumulate(rows->begin(), rows->begin() + place, std::int64_t{0});
    const Tensor sum_of_all = allreduce(gradient, sum);
    return sum_of_all.narrow(0, before, rows->at(static_cast<std::size_t>(place))).reshape(shape);
  };
}

TensorFunction reducescatter_gradient(const ReducescatterOptions& back) {
  return [back](const Tensor& gradient) {
    require_gradient(back.op, back.name);
    const AllgatherOptions gather{back.name, back.process_set};
    const double divisor = back.op == ReduceOp::average ? back.process_set.size() : 1.0;
    return allgather(gradient, gather) * (back.prescale * back.postscale / divisor);
  };
}

// Runs and records an operation whose result is a new tensor of the source's shape.
// `make_call(source, result)` describes the operation.
template <typename MakeCall>
Tensor recorded_out_of_place(const Tensor& tensor, const std::string& name,
                             const MakeCall& make_call, const TensorFunction& backward) {
  const auto forward = [&](const Tensor& input) {
    const Tensor source = source_of(input, name);
    const Tensor result =
        at::empty_like(source, source.options().memory_format(at::MemoryFormat::Contiguous));
    const ConstTensorView source_view = view_of(source);
    call(make_call(source_view, view_of(result)));
    return result;
  };
  return recorded(tensor, forward, backward);
}

// Records an alltoall. `start` starts the alltoall of an input.
template <typename Start>
Received recorded_exchange(const Tensor& tensor, const AlltoallOptions& options,
                           const Start& start) {
  const auto received_splits = std::make_shared<RowCounts>();
  const auto forward = [&](const Tensor& input) {
    Received received = start(input).get();
    *received_splits = std::move(received.splits);
    return received.output;
  };
  const AlltoallOptions back = backward_options(options);
  const Tensor output = recorded(tensor, forward, [=](const Tensor& gradient) {
    return alltoall(gradient, *received_splits, back).output;
  });
  return {output, *received_splits};
}

}  // namespace

Tensor allreduce(const Tensor& tensor, const AllreduceOptions& options) {
  const auto make_call = [&](const ConstTensorView& source, const TensorView& result) {
    return detail::AllreduceCall{source, result, options};
  };
  return recorded_out_of_place(tensor, options.name, make_call,
                               allreduce_gradient(backward_options(options)));
}

Tensors grouped_allreduce(const Tensors& tensors, const GroupedAllreduceOptions& options) {
  Tensors results = grouped_allreduce_async(tensors, options).get();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const GroupedAllreduceOptions back = backward_options(options, i);
    const AllreduceOptions member{back.name,       back.op,          back.prescale,
                                  back.postscale,  back.compression, back.average_over,
                                  back.process_set};
    results[i] = recorded_member(tensors[i], results[i], allreduce_gradient(member));
  }
  return results;
}

Tensor allgather(const Tensor& tensor, const AllgatherOptions& options) {
  const auto rows = std::make_shared<RowCounts>();
  const auto forward = [&](const Tensor& input) {
    const Tensor source = source_of(input, options.name);
    Tensor result;
    *rows = allgather(view_of(source), rows_like(source, result), options);
    return result;
  };
  return recorded(tensor, forward,
                  allgather_gradient(backward_options(options), tensor.sizes().vec(), rows));
}

Tensors grouped_allgather(const Tensors& tensors, const AllgatherOptions& options) {
  Tensors results(tensors.size());
  const auto group = gather_group(tensors, results, options.name);
  auto rows = grouped_allgather(group.sources, group.allocators, options);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto backward = allgather_gradient(backward_options(options, i), tensors[i].sizes().vec(),
                                             std::make_shared<RowCounts>(std::move(rows[i])));
    results[i] = recorded_member(tensors[i], results[i], backward);
  }
  return results;
}

Tensor broadcast(const Tensor& tensor, int root, const BroadcastOptions& options) {
  const auto make_call = [&](const ConstTensorView& source, const TensorView& result) {
    return detail::BroadcastCall{source, result, root, options};
  };
  const AllreduceOptions back = backward_options(AllreduceOptions{
      .name = options.name, .op = ReduceOp::sum, .process_set = options.process_set});
  return recorded_out_of_place(tensor, options.name, make_call, [=](const Tensor& gradient) {
    const Tensor sum_of_all = allreduce(gradient, back);
    return rank() == root ? sum_of_all : at::zeros_like(sum_of_all);
  });
}

Received alltoall(const Tensor& tensor, const RowCounts& splits, const AlltoallOptions& options) {
  return recorded_exchange(
      tensor, options, [&](const Tensor& input) { return alltoall_async(input, splits, options); });
}

Received alltoall(const Tensor& tensor, const AlltoallOptions& options) {
  return recorded_exchange(tensor, options,
                           [&](const Tensor& input) { return alltoall_async(input, options); });
}

Tensor reducescatter(const Tensor& tensor, const ReducescatterOptions& options) {
  const auto forward = [&](const Tensor& input) {
    return reducescatter_async(input, options).get();
  };
  return recorded(tensor, forward, reducescatter_gradient(backward_options(options)));
}

Tensors grouped_reducescatter(const Tensors& tensors, const ReducescatterOptions& options) {
  Tensors results = grouped_reducescatter_async(tensors, options).get();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const TensorFunction backward = reducescatter_gradient(backward_options(options, i));
    results[i] = recorded_member(tensors[i], results[i], backward);
  }
  return results;
}

}  // namespace kolo
