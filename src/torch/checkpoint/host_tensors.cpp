// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "torch/checkpoint/host_tensors.hpp"

#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "kolo/cuda.hpp"
#include "kolo/error.hpp"
#include "torch/tensor_view.hpp"
#include "training/safetensors/safetensors.hpp"

namespace kolo::internal {

bool is_storable(const ::torch::Tensor& tensor) {
  try {
    require_supported(tensor, "");
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

namespace {

/// Reads a tensor in pieces, from the first to the last one.
class TensorReader {
 public:
  explicit TensorReader(const ::torch::Tensor& tensor) : tensor_(tensor.detach()) {}

  void read(std::uint64_t begin, std::span<char> into) {
    if (into.empty()) return;
    const std::lock_guard lock(mutex_);
    // A tensor whose elements are not in row-major order is copied as a whole, and kept only while
    // it is being read.
    if (begin == 0 || !flat_.defined()) flat_ = tensor_.reshape({-1});
    const auto element_bytes = static_cast<std::uint64_t>(flat_.element_size());
    const std::uint64_t end = begin + into.size();
    const std::uint64_t first = begin / element_bytes;
    const std::uint64_t last = (end + element_bytes - 1) / element_bytes;
    const ::torch::Tensor part =
        flat_.narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(last - first))
            .cpu();
    std::memcpy(into.data(),
                static_cast<const char*>(part.data_ptr()) + (begin - first * element_bytes),
                into.size());
    if (end == static_cast<std::uint64_t>(flat_.nbytes())) flat_.reset();
  }

 private:
  ::torch::Tensor tensor_;
  std::mutex mutex_{};
  ::torch::Tensor flat_{};
};

}  // namespace

void add_tensor(StateView& view, const std::string& name, const ::torch::Tensor& tensor) {
  require_supported(tensor, name);
  if (tensor.is_cuda()) synchronize();  // throws what has failed on the GPU
  const auto reader = std::make_shared<TensorReader>(tensor);
  const at::IntArrayRef sizes = tensor.sizes();
  const TensorSource source(view_of(tensor.detach()).dtype(),
                            Shape(std::vector<std::int64_t>(sizes.begin(), sizes.end())),
                            [reader](std::uint64_t begin, std::span<char> into) {
                              const at::NoGradGuard no_grad;
                              reader->read(begin, into);
                            });
  if (!view.tensors.emplace(name, source).second)
    throw InvalidArgument("two tensors are named '" + name + "'", name);
}

::torch::Tensor tensor_of(const TensorSource& source, const std::string& name) {
  const auto dtype = torch_dtype(source.dtype);
  if (!dtype) {
    throw InvalidArgument("tensor '" + name + "' is " + std::string(to_string(source.dtype)) +
                              ", which LibTorch lacks",
                          name);
  }
  const auto lengths = source.shape.lengths();
  const at::IntArrayRef sizes(lengths.data(), lengths.size());
  ::torch::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(*dtype));
  source.read(0, {static_cast<char*>(tensor.data_ptr()), tensor.nbytes()});
  return tensor;
}

UnmatchedNames copy_by_name(const std::string& subject, const StateView& from,
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
  std::vector<std::pair<::torch::Tensor, const TensorSource*>> pairs;
  for (const auto& [wanted, found] : matched.pairs) {
    const TensorSource& source = from.tensors.at(found);
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

::torch::Tensor to_tensor(const StoredTensor& stored) {
  return tensor_of(TensorSource("", stored.view()), "");
}

void save_safetensors(const std::filesystem::path& path, const NamedParameters& tensors,
                      const Metadata& metadata) {
  StateView view = state_view(tensors);
  view.metadata = metadata;
  write_safetensors(path, "safetensors file", view);
}

UnmatchedNames load_safetensors(const std::filesystem::path& path, const NamedParameters& into,
                                const SafetensorsOptions& options) {
  return copy_by_name("'" + path.string() + "'", load_safetensors(path), into, options);
}

}  // namespace kolo
