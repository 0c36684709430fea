// SPDX-License-Identifier: Apache-2.0
#include "kolo/state_dict.hpp"

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "training/require.hpp"

namespace kolo {

using namespace internal;

StateDict::StateDict(const ConstTensorViews& views, Metadata texts) : metadata(std::move(texts)) {
  for (const auto& [name, view] : views) {
    require_cpu(name, view.device());
    const auto bytes = static_cast<std::size_t>(view.elements()) * size_of(view.dtype());
    StoredTensor& tensor = tensors[name];
    tensor = {.dtype = view.dtype(), .shape = view.shape()};
    if (bytes > 0) tensor.bytes.assign(static_cast<const char*>(view.data()), bytes);
  }
}

ConstTensorView StoredTensor::view() const {
  const ConstTensorView view(bytes.data(), shape, dtype);
  const std::size_t wanted = static_cast<std::size_t>(view.elements()) * size_of(dtype);
  require(bytes.size() == wanted, "a stored tensor {} {} has {} bytes, but must have {}",
          to_string(dtype), to_string(shape), bytes.size(), wanted);
  return view;
}

const std::string& StateDict::text() const {
  static const std::string no_text;
  require(metadata.empty(), "this state is not text: it has the metadata '{}'",
          metadata.empty() ? "" : metadata.begin()->first);
  if (tensors.empty()) return no_text;
  require(tensors.size() == 1 && tensors.begin()->first.empty(),
          "this state is not text: it has the tensor '{}'", tensors.rbegin()->first);
  return tensors.begin()->second.bytes;
}

void StateDict::set_text(std::string text) {
  metadata.clear();
  if (text.empty()) {
    tensors.clear();
    return;
  }
  const auto length = static_cast<std::int64_t>(text.size());
  tensors.erase(tensors.upper_bound(std::string()), tensors.end());
  tensors[""] = {.dtype = DType::u8, .shape = Shape{length}, .bytes = std::move(text)};
}

ConstTensorViews StateDict::views() const {
  ConstTensorViews all;
  for (const auto& [name, tensor] : tensors) all.emplace(name, tensor.view());
  return all;
}

}  // namespace kolo
