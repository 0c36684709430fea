#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "torch/collective_gradients.hpp"

#include <numeric>
#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"

namespace kolo::detail {
namespace {

using ::torch::Tensor;

void require_gradient(ReduceOp op, const std::string& name) {
  if (op == ReduceOp::average || op == ReduceOp::sum) return;
  throw InvalidArgument(
      "'" + name + "': a reduction by " + std::string(to_string(op)) + " has no gradient", name);
}

}  // namespace

std::string backward_name(const std::string& name) {
  return name.empty() ? name : name + ".backward";
}

std::string backward_name(const std::string& name, std::size_t member) {
  return name.empty() ? name : backward_name(name) + "." + std::to_string(member);
}

TensorFunction allreduce_gradient(const AllreduceOptions& back) {
  return [back](const Tensor& gradient) {
    require_gradient(back.op, back.name);
    return allreduce(gradient, back);
  };
}

TensorFunction allgather_gradient(const AllgatherOptions& back,
                                  const std::vector<std::int64_t>& shape,
                                  std::shared_ptr<const std::vector<std::int64_t>> rows) {
  const AllreduceOptions sum{
      .name = back.name, .op = ReduceOp::sum, .process_set = back.process_set};
  return [sum, shape, rows = std::move(rows)](const Tensor& gradient) {
    const int rank_in_set = sum.process_set.rank();
    const std::int64_t first_row =
        std::accumulate(rows->begin(), rows->begin() + rank_in_set, std::int64_t{0});
    const Tensor sum_of_all = allreduce(gradient, sum);
    return sum_of_all.narrow(0, first_row, rows->at(static_cast<std::size_t>(rank_in_set)))
        .reshape(shape);
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

}  // namespace kolo::detail
