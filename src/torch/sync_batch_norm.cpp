// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "kolo/torch/sync_batch_norm.hpp"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <string>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"

namespace kolo {
namespace {

namespace nn = ::torch::nn;
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

// Half types are computed in f32: their range and precision are too small for sums over a batch.
Tensor widened(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

Tensor sum_over_ranks(const Tensor& values, const ProcessSet& set) {
  return allreduce(values, AllreduceOptions{.op = ReduceOp::sum, .process_set = set});
}

// This rank's values per channel.
std::int64_t own_count(const Tensor& input) {
  return input.size(1) == 0 ? 0 : input.numel() / input.size(1);
}

// The sums and the sums of squares of this rank's values per channel, and their count. The sums are
// derived from mean and variance, because adding f32 squares directly loses the variance where the
// mean is large.
Tensor sums_and_count(const Tensor& input) {
  const std::int64_t channels = input.size(1);
  const auto count = static_cast<double>(own_count(input));
  const auto options = input.options().dtype(at::kDouble);
  if (count == 0.0) return at::zeros({2 * channels + 1}, options);
  const auto [narrow_variance, narrow_mean] =
      at::var_mean(widened(input), batch_dimensions(input), /*unbiased=*/false);
  const Tensor mean = narrow_mean.to(at::kDouble);
  const Tensor squares = (narrow_variance.to(at::kDouble) + mean * mean) * count;
  return at::cat({mean * count, squares, at::full({1}, count, options)});
}

// Statistics over the batches of all ranks, per channel, in f64. They stay where the input is: to
// read a number of a GPU, the host would wait for all that is queued there.
struct BatchStatistics {
  Tensor mean;
  Tensor variance;  // biased: divided by the count
  Tensor count;     // values per channel, without dimensions
};

// Throws InvalidArgument, on all ranks, if `count` is less than two. A rank with two values of its
// own need not look.
void require_two(const Tensor& input, const Tensor& count) {
  if (own_count(input) >= 2) return;
  const double all = count.item<double>();
  if (all >= 2.0) return;
  throw InvalidArgument("SyncBatchNorm: the batches of all ranks have " +
                        std::to_string(static_cast<std::int64_t>(all)) +
                        " values per channel together; training needs two");
}

// Computes the statistics with one unnamed allreduce, which autograd records if gradients are
// enabled. `input` is [N, C, ...]. Throws InvalidArgument, on all ranks, if all batches together
// have fewer than two values per channel.
BatchStatistics batch_statistics(const Tensor& input, const ProcessSet& set) {
  const std::int64_t channels = input.size(1);
  const Tensor totals = sum_over_ranks(sums_and_count(input), set);
  const Tensor count = totals[2 * channels];
  require_two(input, count);
  const Tensor mean = totals.narrow(0, 0, channels) / count;
  const Tensor squares = totals.narrow(0, channels, channels) / count;
  // Rounding can make the difference slightly negative.
  return {mean, (squares - mean * mean).clamp_min(0.0), count};
}

// The values that backward needs from forward, besides tensors.
struct SavedValues : ::torch::CustomClassHolder {
  SavedValues(double of_eps, ProcessSet of_set) : eps(of_eps), set(std::move(of_set)) {}
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

// (input - mean) / sqrt(variance + eps) * weight + bias. The gradient includes the dependence of
// the statistics on all ranks' inputs, so backward runs one unnamed allreduce.
struct Normalize : ::torch::autograd::Function<Normalize> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        const Tensor& bias, const BatchStatistics& statistics, double eps,
                        const ProcessSet& set) {
    context->save_for_backward(
        {input, weight, statistics.mean, statistics.variance, statistics.count});
    context->saved_data["values"] =
        c10::IValue::make_capsule(c10::make_intrusive<SavedValues>(eps, set));
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
                                           : BatchStatistics{saved[2], saved[3], saved[4]};
    const Gradients result =
        gradients_of(gradients.front(), saved[0], saved[1], statistics, values.eps, values.set);
    return {result.input, result.weight, result.bias, {}, {}, {}};
  }
};

// Makes `target` a copy of `source`, even if dtype or device differ.
void replace(Tensor& target, const Tensor& source) {
  if (target.defined() && source.defined()) target.set_data(source.detach().clone());
}

template <typename... Norms>
std::shared_ptr<SyncBatchNormImpl> synchronized_form_of_any(const nn::Module& module,
                                                            const ProcessSet& set) {
  std::shared_ptr<SyncBatchNormImpl> form;
  const auto convert = [&](const auto* norm) {
    if (norm != nullptr) form = std::make_shared<SyncBatchNormImpl>(*norm, set);
  };
  (convert(module.as<Norms>()), ...);
  return form;
}

// The synchronized form of a batch normalization; null for any other module.
std::shared_ptr<SyncBatchNormImpl> synchronized_form_of(const nn::Module& module,
                                                        const ProcessSet& set) {
  return synchronized_form_of_any<nn::BatchNorm1d, nn::BatchNorm2d, nn::BatchNorm3d>(module, set);
}

void require_none_inside(const std::string& name, const nn::Module& module, const ProcessSet& set) {
  for (const auto& inner : module.named_modules(name, /*include_self=*/false)) {
    if (!synchronized_form_of(*inner.value(), set)) continue;
    throw InvalidArgument("convert_sync_batchnorm: '" + inner.key() +
                          "' is inside a module that is not a Sequential. Declare it as "
                          "kolo::SyncBatchNorm there");
  }
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const nn::BatchNormOptions& options_, ProcessSet set)
    : NormImplBase(options_), set_(std::move(set)) {}

void SyncBatchNormImpl::_check_input_dim(const Tensor& input) {
  if (input.dim() >= 2 && input.size(1) == options.num_features()) return;
  throw InvalidArgument(
      "SyncBatchNorm: the input must be [N, " + std::to_string(options.num_features()) +
      ", ...], but has " + std::to_string(input.dim()) + " dimensions" +
      (input.dim() < 2 ? "" : " and " + std::to_string(input.size(1)) + " channels"));
}

bool SyncBatchNormImpl::is_synchronized() const { return is_training() && set_.rank() >= 0; }

Tensor SyncBatchNormImpl::forward(const Tensor& input) {
  _check_input_dim(input);
  if (is_training() && options.track_running_stats()) num_batches_tracked += 1;
  if (!is_synchronized()) {
    return nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias,
                                              is_training() || !options.track_running_stats(),
                                              local_factor(), options.eps());
  }
  // Autograd does not record the statistics: the gradient of `Normalize` includes the dependence on
  // them.
  const BatchStatistics statistics = [&] {
    const at::NoGradGuard no_grad;
    return batch_statistics(input, set_);
  }();
  update_statistics(statistics.mean, statistics.variance, statistics.count);
  const auto like =
      input.options().dtype(input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const Tensor scale = weight.defined() ? weight : at::ones({options.num_features()}, like);
  const Tensor shift = bias.defined() ? bias : at::zeros({options.num_features()}, like);
  return Normalize::apply(input, scale, shift, statistics, options.eps(), set_);
}

// The weight of a new batch in the running statistics, if no other rank has a part in it. Without a
// momentum all batches count equally.
double SyncBatchNormImpl::local_factor() const {
  if (!is_training() || !options.track_running_stats()) return 0.0;
  const auto momentum = options.momentum();
  return momentum ? *momentum : 1.0 / num_batches_tracked.item<double>();
}

void SyncBatchNormImpl::update_statistics(const Tensor& mean, const Tensor& variance,
                                          const Tensor& count) {
  if (!options.track_running_stats()) return;
  const at::NoGradGuard no_grad;
  const auto momentum = options.momentum();
  const Tensor factor = momentum ? at::full({}, *momentum, at::kDouble)
                                 : num_batches_tracked.to(at::kDouble).reciprocal();
  const auto type = running_mean.scalar_type();
  const Tensor unbiased = variance * (count / (count - 1.0));
  running_mean.mul_(1.0 - factor).add_(mean.to(type) * factor);
  running_var.mul_(1.0 - factor).add_(unbiased.to(type) * factor);
}

void SyncBatchNormImpl::share(const Tensor& their_weight, const Tensor& their_bias) {
  weight = their_weight;
  bias = their_bias;
  if (their_weight.defined()) parameters_["weight"] = their_weight;
  if (their_bias.defined()) parameters_["bias"] = their_bias;
}

void SyncBatchNormImpl::copy_statistics(const Tensor& mean, const Tensor& variance,
                                        const Tensor& batches) {
  replace(running_mean, mean);
  replace(running_var, variance);
  replace(num_batches_tracked, batches);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "kolo::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", affine=" << std::boolalpha << options.affine()
         << ", track_running_stats=" << options.track_running_stats() << ")";
}

nn::Sequential convert_sync_batchnorm(const nn::Sequential& model, const ProcessSet& set) {
  nn::Sequential converted;
  const auto names = model->named_children();
  auto module = model->begin();
  for (std::size_t i = 0; i < names.size(); ++i, ++module) {
    const std::string& name = names[i].key();
    if (const auto norm = synchronized_form_of(*names[i].value(), set)) {
      converted->push_back(name, norm);
    } else {
      require_none_inside(name, *names[i].value(), set);
      converted->push_back(name, *module);
    }
  }
  converted->train(model->is_training());
  return converted;
}

}  // namespace kolo
