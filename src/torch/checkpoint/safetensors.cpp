// SPDX-License-Identifier: Apache-2.0
#include "kolo/torch/safetensors.hpp"

#include "torch/checkpoint/host_tensors.hpp"

namespace kolo {

using namespace internal;

::torch::Tensor to_tensor(const StoredTensor& stored) { return tensor_of(stored.view(), ""); }

void save_safetensors(const std::filesystem::path& path, const NamedParameters& tensors,
                      const Metadata& metadata) {
  const HostTensors host(tensors);
  save_safetensors(path, host.views(), metadata);
}

void save_safetensors(const std::filesystem::path& path, const ::torch::nn::Module& module,
                      const Metadata& metadata) {
  save_safetensors(path, tensors_of(module), metadata);
}

UnmatchedNames load_safetensors(const std::filesystem::path& path, const NamedParameters& into,
                                const SafetensorsOptions& options) {
  const Safetensors file = load_safetensors(path);
  ConstTensorViews views;
  for (const auto& [name, tensor] : file.tensors) views.emplace(name, tensor.view());
  return copy_by_name("'" + path.string() + "'", views, into, options);
}

UnmatchedNames load_safetensors(const std::filesystem::path& path, ::torch::nn::Module& module,
                                const SafetensorsOptions& options) {
  return load_safetensors(path, tensors_of(module), options);
}

}  // namespace kolo
