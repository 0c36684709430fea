// Collectives on groups of tensors out of place, as autograd records them: one operation forward,
// in backward one for each tensor that asks for its gradient.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "kolo/collectives.hpp"

#include <memory>
#include <utility>

#include "kolo/torch/collectives.hpp"
#include "torch/collective_gradients.hpp"
#include "torch/gpu_stream.hpp"
#include "torch/recorded.hpp"
#include "torch/tensor_view.hpp"

namespace kolo {
namespace {

using ::torch::Tensor;

// `result` is what the group's operation has made of `tensor`.
Tensor recorded_member(const Tensor& tensor, const Tensor& result,
                       const detail::TensorFunction& backward) {
  return detail::recorded(
      tensor, [&result](const Tensor&) { return result; }, backward);
}

}  // namespace

std::vector<Tensor> grouped_allreduce(const std::vector<Tensor>& tensors,
                                      const GroupedAllreduceOptions& options) {
  std::vector<Tensor> results = grouped_allreduce_async(tensors, options).get();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const AllreduceOptions back{detail::backward_name(options.name, i),
                                options.op,
                                options.prescale,
                                options.postscale,
                                options.compression,
                                options.average_over,
                                options.process_set};
    results[i] = recorded_member(tensors[i], results[i], detail::allreduce_gradient(back));
  }
  return results;
}

std::vector<Tensor> grouped_allgather(const std::vector<Tensor>& tensors,
                                      const AllgatherOptions& options) {
  std::vector<Tensor> results(tensors.size());
  const auto group = detail::gather_group(tensors, results, options.name);
  const detail::StreamOf stream(tensors);
  auto rows = grouped_allgather(group.sources, group.allocators, options);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const AllgatherOptions back{detail::backward_name(options.name, i), options.process_set};
    const auto rows_of_members = std::make_shared<std::vector<std::int64_t>>(std::move(rows[i]));
    results[i] = recorded_member(
        tensors[i], results[i],
        detail::allgather_gradient(back, tensors[i].sizes().vec(), rows_of_members));
  }
  return results;
}

std::vector<Tensor> grouped_reducescatter(const std::vector<Tensor>& tensors,
                                          const ReducescatterOptions& options) {
  std::vector<Tensor> results = grouped_reducescatter_async(tensors, options).get();
  for (std::size_t i = 0; i < results.size(); ++i) {
    ReducescatterOptions back = options;
    back.name = detail::backward_name(options.name, i);
    results[i] = recorded_member(tensors[i], results[i], detail::reducescatter_gradient(back));
  }
  return results;
}

}  // namespace kolo
