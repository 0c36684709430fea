// SPDX-License-Identifier: Apache-2.0
#include "kolo/state_handler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/descriptor.hpp"
#include "base/dtype.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::elastic::detail {

using namespace internal;
namespace {

std::size_t bytes_of(const TensorView& tensor) {
  return static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype());
}

}  // namespace

void throw_wrong_size(std::size_t expected, std::size_t found) {
  throw InvalidArgument(fmt::format(
      "it has {} bytes on this rank, and {} in the commit; it must have the same type and size on "
      "all ranks",
      expected, found));
}

void save_bytes(StateDict& state, const void* data, std::size_t bytes) {
  if (bytes == 0) {
    state = {};
    return;
  }
  StoredTensor& tensor = state.tensors[""];
  tensor.shape = Shape{static_cast<std::int64_t>(bytes)};
  tensor.bytes.assign(static_cast<const char*>(data), bytes);
}

MemoryHandler::MemoryHandler(std::vector<NamedTensor> tensors) : tensors_(std::move(tensors)) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    if (!names.insert(name).second)
      throw InvalidArgument(
          fmt::format("kolo::elastic::State::add: two tensors are named '{}'", name), name);
    const auto lengths = tensor.shape().lengths();
    if (std::ranges::any_of(lengths, [](auto length) { return length < 0; }) || !extent_of(lengths))
      throw InvalidArgument(
          fmt::format("kolo::elastic::State::add: shape {} has a negative length, or more than {} "
                      "elements",
                      to_string(tensor.shape()), max_tensor_elements),
          name);
  }
}

std::vector<std::pair<std::string, std::string>> MemoryHandler::layout() const {
  std::vector<std::pair<std::string, std::string>> list;
  for (const auto& [name, tensor] : tensors_)
    list.emplace_back(name,
                      fmt::format("{} {}", to_string(tensor.dtype()), to_string(tensor.shape())));
  return list;
}

void MemoryHandler::save(StateDict& state) {
  for (const auto& [name, tensor] : tensors_) {
    StoredTensor& stored = state.tensors[name];
    stored.dtype = tensor.dtype();
    stored.shape = tensor.shape();
    stored.bytes.assign(static_cast<const char*>(tensor.data()), bytes_of(tensor));
  }
}

void MemoryHandler::load(const StateDict& state) {
  for (const auto& [name, tensor] : tensors_) {
    const auto found = state.tensors.find(name);
    if (found == state.tensors.end())
      throw InvalidArgument(
          fmt::format("kolo::elastic::State: the commit has no tensor '{}'", name), name);
    const std::size_t bytes = found->second.bytes.size();
    if (bytes != bytes_of(tensor)) throw_wrong_size(bytes_of(tensor), bytes);
  }
  for (const auto& [name, tensor] : tensors_)
    if (bytes_of(tensor) > 0)
      std::memcpy(tensor.data(), state.tensors.at(name).bytes.data(), bytes_of(tensor));
}

std::unique_ptr<StateHandler> KeepingHandler::make(
    std::shared_ptr<void> object, const std::function<std::unique_ptr<StateHandler>()>& make) {
  if (!object) throw InvalidArgument("kolo::elastic::State::add: a part is null");
  auto handler = std::make_unique<KeepingHandler>();
  handler->object_ = std::move(object);
  handler->handler_ = make();
  return handler;
}

}  // namespace kolo::elastic::detail
