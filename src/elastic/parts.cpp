// SPDX-License-Identifier: Apache-2.0
// The parts of a State that are no templates.
#include <fmt/format.h>

#include <cstring>

#include "base/dtype.hpp"
#include "kolo/elastic.hpp"

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

void MemoryPart::save(std::string& bytes) {
  bytes.clear();
  for (const auto& [name, tensor] : tensors_)
    bytes.append(static_cast<const char*>(tensor.data()), bytes_of(tensor));
}

void MemoryPart::load(const std::string& bytes) {
  std::size_t size = 0;
  for (const auto& [name, tensor] : tensors_) size += bytes_of(tensor);
  if (bytes.size() != size) throw_wrong_size(size, bytes.size());
  const char* from = bytes.data();
  for (const auto& [name, tensor] : tensors_) {
    if (bytes_of(tensor) > 0) std::memcpy(tensor.data(), from, bytes_of(tensor));
    from += bytes_of(tensor);
  }
}

std::unique_ptr<Part> KeepingPart::make(std::shared_ptr<void> object,
                                        const std::function<std::unique_ptr<Part>()>& make) {
  if (!object) throw InvalidArgument("kolo::elastic::State::add: a part is null");
  auto part = std::make_unique<KeepingPart>();
  part->object_ = std::move(object);
  part->part_ = make();
  return part;
}

}  // namespace kolo::elastic::detail
