// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "torch/checkpoint/host_tensors.hpp"

#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <optional>

#include "base/format.hpp"
#include "kolo/cuda.hpp"
#include "kolo/error.hpp"
#include "torch/tensor_view.hpp"
#include "training/checkpoint/safetensors.hpp"

namespace kolo::internal {

bool is_storable(const ::torch::Tensor& tensor) {
  try {
    require_supported(tensor, "");
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

HostTensors::HostTensors(const NamedParameters& tensors) {
  for (const auto& [name, tensor] : tensors) add(name, tensor);
}

void HostTensors::add(const std::string& name, const ::torch::Tensor& tensor) {
  require_supported(tensor, name);
  if (tensor.is_cuda()) synchronize();  // throws what has failed on the GPU
  const ::torch::Tensor& kept = tensors_.emplace_back(tensor.detach().cpu().contiguous());
  if (!views_.emplace(name, view_of(kept)).second)
    throw InvalidArgument("two tensors are named '" + name + "'", name);
}

::torch::Tensor tensor_of(const StoredTensor& stored, const std::string& name) {
  const auto dtype = torch_dtype(stored.dtype);
  if (!dtype) {
    throw InvalidArgument("tensor '" + name + "' is " + std::string(to_string(stored.dtype)) +
                              ", which LibTorch lacks",
                          name);
  }
  const auto lengths = stored.shape.lengths();
  const at::IntArrayRef sizes(lengths.data(), lengths.size());
  ::torch::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(*dtype));
  const ConstTensorView view = stored.view();
  if (tensor.nbytes() > 0) std::memcpy(tensor.data_ptr(), view.data(), tensor.nbytes());
  return tensor;
}

UnmatchedNames copy_by_name(const std::string& subject, const StateDict& from,
                            const NamedParameters& into, const SafetensorsOptions& options) {
  std::map<std::string, ::torch::Tensor> existing;
  for (const auto& [name, tensor] : into) {
    require_writable(tensor, name);
    if (!existing.emplace(name, tensor).second)
      throw InvalidArgument("two tensors are named '" + name + "'", name);
  }
  const auto identity = [](const ::torch::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); };
  MatchedNames matched =
      match_names(subject, required_names(existing, from.tensors, options.prefix, identity),
                  names_of(from.tensors), options);
  std::vector<std::pair<::torch::Tensor, const StoredTensor*>> pairs;
  for (const auto& [wanted, found] : matched.pairs) {
    const StoredTensor& source = from.tensors.at(found);
    const ::torch::Tensor& target = existing.at(wanted);
    const auto lengths = source.shape.lengths();
    if (target.sizes() != at::IntArrayRef(lengths.data(), lengths.size()))
      throw InvalidArgument(subject + ": '" + found + "' has shape " + to_string(source.shape) +
                                " in the " + std::string(holder_of(subject)) + " but " +
                                to_string(view_of(target.detach()).shape()) + " in the program",
                            found);
    if (!torch_dtype(source.dtype)) (void)tensor_of(source, found);  // throws
    pairs.emplace_back(target, &source);
  }
  // All tensors are checked before the first one changes.
  const at::NoGradGuard no_grad;
  for (auto& [target, source] : pairs) target.copy_(tensor_of(*source, ""));
  return std::move(matched.unmatched);
}

}  // namespace kolo::internal

namespace kolo {

using namespace internal;

::torch::Tensor to_tensor(const StoredTensor& stored) { return tensor_of(stored, ""); }

void save_safetensors(const std::filesystem::path& path, const NamedParameters& tensors,
                      const Metadata& metadata) {
  const HostTensors host(tensors);
  save_safetensors(path, host.views(), metadata);
}

UnmatchedNames load_safetensors(const std::filesystem::path& path, const NamedParameters& into,
                                const SafetensorsOptions& options) {
  return copy_by_name("'" + path.string() + "'", load_safetensors(path), into, options);
}

}  // namespace kolo
