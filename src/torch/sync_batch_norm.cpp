// SPDX-License-Identifier: Apache-2.0
#include "kolo/torch/sync_batch_norm.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <string>

#include "kolo/error.hpp"
#include "torch/batch_statistics.hpp"

namespace kolo {

using namespace internal;
namespace {

namespace nn = ::torch::nn;
using ::torch::Tensor;

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
  const double factor = update_factor();
  if (!is_synchronized()) {
    return nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias,
                                              is_training() || !options.track_running_stats(),
                                              factor, options.eps());
  }
  // Autograd does not record the statistics: the gradient of `normalize` includes the dependence on
  // them.
  const BatchStatistics statistics = [&] {
    const at::NoGradGuard no_grad;
    return batch_statistics(input, set_);
  }();
  update_statistics(statistics.mean, statistics.variance, statistics.count, factor);
  const auto like =
      input.options().dtype(input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const Tensor scale = weight.defined() ? weight : at::ones({options.num_features()}, like);
  const Tensor shift = bias.defined() ? bias : at::zeros({options.num_features()}, like);
  return normalize(input, scale, shift, statistics, options.eps(), set_);
}

// The weight of a new batch in the running statistics. Without a momentum all batches count
// equally.
double SyncBatchNormImpl::update_factor() {
  if (!is_training() || !options.track_running_stats()) return 0.0;
  num_batches_tracked += 1;
  const auto momentum = options.momentum();
  return momentum ? *momentum : 1.0 / num_batches_tracked.item<double>();
}

void SyncBatchNormImpl::update_statistics(const Tensor& mean, const Tensor& variance, double count,
                                          double factor) {
  if (!options.track_running_stats()) return;
  const at::NoGradGuard no_grad;
  const auto type = running_mean.scalar_type();
  const Tensor unbiased = variance * (count / (count - 1.0));
  running_mean.mul_(1.0 - factor).add_(mean.to(type), factor);
  running_var.mul_(1.0 - factor).add_(unbiased.to(type), factor);
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
