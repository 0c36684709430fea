// SPDX-License-Identifier: Apache-2.0
#include "kolo/state_dict.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

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

TensorSource::TensorSource(DType type, const Shape& lengths, decltype(read) reader)
    : dtype(type), shape(lengths), read(std::move(reader)) {}

TensorSource::TensorSource(const std::string& name, const ConstTensorView& view)
    : TensorSource(view.dtype(), view.shape(),
                   [data = static_cast<const char*>(view.data())](std::uint64_t begin,
                                                                  std::span<char> into) {
                     if (!into.empty()) std::memcpy(into.data(), data + begin, into.size());
                   }) {
  require_cpu(name, view.device());
}

std::uint64_t TensorSource::bytes() const {
  return static_cast<std::uint64_t>(shape.elements()) * size_of(dtype);
}

StateView::StateView(const ConstTensorViews& views, Metadata texts) : metadata(std::move(texts)) {
  for (const auto& [name, view] : views) tensors.emplace(name, TensorSource(name, view));
}

StateView::StateView(const StateDict& state) : StateView(state.views(), state.metadata) {}

StateView::StateView(StateDict&& state) {
  const auto kept = std::make_shared<const StateDict>(std::move(state));
  *this = StateView(*kept);
  for (auto& [name, tensor] : tensors)
    tensor.read = [kept, read = std::move(tensor.read)](std::uint64_t begin, std::span<char> into) {
      read(begin, into);
    };
}

StateDict StateView::copy() const {
  StateDict state;
  state.metadata = metadata;
  for (const auto& [name, source] : tensors) {
    StoredTensor& tensor = state.tensors[name];
    tensor = {.dtype = source.dtype, .shape = source.shape};
    tensor.bytes.resize(source.bytes());
    source.read(0, tensor.bytes);
  }
  return state;
}

std::string StateView::text() const {
  // Only the names are needed to tell that a state is not text.
  StateDict kind;
  kind.metadata = metadata;
  for (const auto& [name, source] : tensors) kind.tensors[name];
  static_cast<void>(kind.text());
  return copy().text();
}

ConstTensorViews StateDict::views() const {
  ConstTensorViews all;
  for (const auto& [name, tensor] : tensors) all.emplace(name, tensor.view());
  return all;
}

}  // namespace kolo
