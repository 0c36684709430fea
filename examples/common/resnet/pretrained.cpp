// SPDX-License-Identifier: Apache-2.0
#include "pretrained.hpp"

#include <torch/nn/pimpl.h>
#include <torch/utils.h>

#include <array>
#include <kolo/torch.hpp>
#include <stdexcept>
#include <string>

namespace examples {
namespace {

namespace nn = torch::nn;

class FrozenBatchNormImpl : public nn::Module {
 public:
  explicit FrozenBatchNormImpl(std::int64_t channels)
      : weight_(register_buffer("weight", torch::ones({channels}))),
        bias_(register_buffer("bias", torch::zeros({channels}))),
        mean_(register_buffer("running_mean", torch::zeros({channels}))),
        variance_(register_buffer("running_var", torch::ones({channels}))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::batch_norm(x, weight_, bias_, mean_, variance_, /*training=*/false,
                             /*momentum=*/0.0, /*eps=*/1e-5, /*cudnn_enabled=*/true);
  }

 private:
  torch::Tensor weight_, bias_, mean_, variance_;
};
TORCH_MODULE(FrozenBatchNorm);

// Adds a module's tensors, with `prefix` before their names, except tensors that only training
// needs.
void append(kolo::NamedParameters& tensors, const std::string& prefix, const nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    tensors.emplace_back(prefix + item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) {
    if (item.key().find("num_batches_tracked") == std::string::npos) {
      tensors.emplace_back(prefix + item.key(), item.value());
    }
  }
}

// By torchvision's names. The stem is a convolution and its normalization, then layers without
// parameters.
kolo::NamedParameters named_tensors(const ResNet& network) {
  kolo::NamedParameters tensors;
  append(tensors, "conv1.", *network.stem->ptr(0));
  append(tensors, "bn1.", *network.stem->ptr(1));
  for (std::size_t i = 0; i < network.stages.size(); ++i) {
    append(tensors, "layer" + std::to_string(i + 1) + ".", *network.stages[i]);
  }
  return tensors;
}

}  // namespace

nn::AnyModule frozen_batch_norm(std::int64_t channels) {
  return nn::AnyModule(FrozenBatchNorm(channels));
}

void freeze(ResNet& network, std::size_t stages) {
  for (torch::Tensor& parameter : network.stem->parameters()) parameter.requires_grad_(false);
  for (std::size_t i = 0; i < stages; ++i) {
    for (torch::Tensor& parameter : network.stages[i]->parameters()) {
      parameter.requires_grad_(false);
    }
  }
}

void load_pretrained(ResNet& network, const std::filesystem::path& file) {
  const torch::NoGradGuard no_grad;
  const kolo::NamedParameters tensors = named_tensors(network);
  const kolo::UnmatchedNames names = kolo::load_safetensors(file, tensors, {.strict = false});
  if (names.missing.empty()) return;
  throw std::runtime_error("'" + file.string() + "' lacks " + std::to_string(names.missing.size()) +
                           " of the backbone's " + std::to_string(tensors.size()) +
                           " tensors, such as '" + names.missing.front() +
                           "': it must be of the same network, with torchvision's names");
}

ImageNetColors::ImageNetColors(double center, double scale) {
  // Mean and deviation of the three colors, for values from 0 to 1, as published with torchvision's
  // weights.
  constexpr std::array mean{0.485, 0.456, 0.406}, deviation{0.229, 0.224, 0.225};
  factor_ = torch::empty({1, 3, 1, 1});
  offset_ = torch::empty({1, 3, 1, 1});
  for (std::size_t color = 0; color < mean.size(); ++color) {
    const auto index = static_cast<std::int64_t>(color);
    factor_[0][index][0][0] = scale / 255 / deviation[color];
    offset_[0][index][0][0] = (center / 255 - mean[color]) / deviation[color];
  }
}

torch::Tensor ImageNetColors::operator()(const torch::Tensor& images) const {
  return images * factor_.to(images.options()) + offset_.to(images.options());
}

}  // namespace examples
