// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "torch/batch_statistics.hpp"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"

namespace kolo::internal {
namespace {

using ::torch::Tensor;
using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;

// All dimensions except the channels.
std::vector<std::int64_t> batch_dimensions(const Tensor& input) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

// Reshapes one value per channel so that it broadcasts over `input`.
Tensor per_channel(const Tensor& values, const Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = -1;
  return values.to(input.scalar_type()).view(shape);
}

// Half types are computed in f32: their range and precision do not hold sums over a batch.
Tensor widened(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

Tensor sum_over_ranks(const Tensor& values, const ProcessSet& set) {
  return allreduce(values, AllreduceOptions{.op = ReduceOp::sum, .process_set = set});
}

// The sums and the sums of squares of this rank's values per channel, and their count. The sums are
// derived from mean and variance, because adding f32 squares directly loses the variance where the
// mean is large.
Tensor sums_and_count(const Tensor& input) {
  const std::int64_t channels = input.size(1);
  const double count = channels == 0 ? 0.0 : static_cast<double>(input.numel() / channels);
  const auto options = input.options().dtype(at::kDouble);
  if (count == 0.0) return at::zeros({2 * channels + 1}, options);
  const auto [narrow_variance, narrow_mean] =
      at::var_mean(widened(input), batch_dimensions(input), /*unbiased=*/false);
  const Tensor mean = narrow_mean.to(at::kDouble);
  const Tensor squares = (narrow_variance.to(at::kDouble) + mean * mean) * count;
  return at::cat({mean * count, squares, at::full({1}, count, options)});
}

// The values that backward needs from forward, besides tensors.
struct SavedValues : ::torch::CustomClassHolder {
  SavedValues(double of_count, double of_eps, ProcessSet of_set)
      : count(of_count), eps(of_eps), set(std::move(of_set)) {}
  double count;
  double eps;
  ProcessSet set;
};

struct Gradients {
  Tensor input;
  Tensor weight;
  Tensor bias;
};

// With f = 1 / sqrt(variance + eps), n values per channel and d = input - mean, the gradient of the
// sum of all ranks' losses is
//   f * weight * (g - sum(g) / n - d * f^2 * sum(g * d) / n),
// where the sums run over the batches of all ranks.
Gradients gradients_of(const Tensor& gradient, const Tensor& input, const Tensor& weight,
                       const BatchStatistics& statistics, double eps, const ProcessSet& set) {
  const auto dimensions = batch_dimensions(input);
  const std::int64_t channels = input.size(1);
  const Tensor factor = (statistics.variance + eps).rsqrt();
  const Tensor g = widened(gradient);
  const Tensor d = widened(input) - per_channel(statistics.mean, widened(input));
  const Tensor sum_g = g.sum(dimensions).to(at::kDouble);
  const Tensor sum_gd = (g * d).sum(dimensions).to(at::kDouble);
  const Tensor totals = sum_over_ranks(at::cat({sum_g, sum_gd}), set) / statistics.count;
  const Tensor of_mean = totals.narrow(0, 0, channels);
  const Tensor of_variance = totals.narrow(0, channels, channels) * factor * factor;
  const Tensor inner = g - per_channel(of_mean, g) - d * per_channel(of_variance, g);
  const Tensor outer = inner * per_channel(factor * weight.to(at::kDouble), g);
  return {outer.to(input.scalar_type()), (sum_gd * factor).to(weight.scalar_type()),
          sum_g.to(weight.scalar_type())};
}

struct Normalize : ::torch::autograd::Function<Normalize> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        const Tensor& bias, const BatchStatistics& statistics, double eps,
                        const ProcessSet& set) {
    context->save_for_backward({input, weight, statistics.mean, statistics.variance});
    context->saved_data["values"] =
        c10::IValue::make_capsule(c10::make_intrusive<SavedValues>(statistics.count, eps, set));
    // An empty batch still takes part in backward's allreduce, so it needs a node in the graph.
    if (input.numel() == 0) return input.clone();
    const auto type = weight.scalar_type();
    return at::batch_norm(input, weight, bias, statistics.mean.to(type),
                          statistics.variance.to(type), /*training=*/false, /*momentum=*/0.0, eps,
                          /*cudnn_enabled=*/false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto capsule = context->saved_data["values"].toCapsule();
    const auto& values = static_cast<const SavedValues&>(*capsule);
    // A second derivative must see how the statistics depend on the input, so they are computed
    // again, this time recorded by autograd.
    const BatchStatistics statistics = at::GradMode::is_enabled()
                                           ? batch_statistics(saved[0], values.set)
                                           : BatchStatistics{saved[2], saved[3], values.count};
    const Gradients result =
        gradients_of(gradients.front(), saved[0], saved[1], statistics, values.eps, values.set);
    return {result.input, result.weight, result.bias, {}, {}, {}};
  }
};

}  // namespace

BatchStatistics batch_statistics(const Tensor& input, const ProcessSet& set) {
  const std::int64_t channels = input.size(1);
  const Tensor totals = sum_over_ranks(sums_and_count(input), set);
  const double count = totals[2 * channels].item<double>();
  if (count < 2.0) {
    throw InvalidArgument("SyncBatchNorm: the batches of all ranks have " +
                          std::to_string(static_cast<std::int64_t>(count)) +
                          " values per channel together; training needs two");
  }
  const Tensor mean = totals.narrow(0, 0, channels) / count;
  const Tensor squares = totals.narrow(0, channels, channels) / count;
  // Rounding can make the difference slightly negative.
  return {mean, (squares - mean * mean).clamp_min(0.0), count};
}

Tensor normalize(const Tensor& input, const Tensor& weight, const Tensor& bias,
                 const BatchStatistics& statistics, double eps, const ProcessSet& set) {
  return Normalize::apply(input, weight, bias, statistics, eps, set);
}

}  // namespace kolo::internal
