// SPDX-License-Identifier: Apache-2.0
#include "fusion/select.hpp"

#include "base/dtype.hpp"

namespace kolo::internal::fusion {
namespace {

/// 0 if ranks may differ in the first length: then nothing is packed.
std::int64_t bytes_of(const Descriptor& descriptor) {
  std::int64_t bytes = 0;
  for (const TensorSpec& tensor : descriptor.tensors) {
    const bool known = tensor.shape.dimensions() == 0 || tensor.shape[0] != any_length;
    if (known) bytes += tensor.shape.elements() * signed_size_of(tensor.dtype);
  }
  return bytes;
}

bool travels_with_others(const Descriptor& descriptor) {
  switch (descriptor.type) {
    case OperationType::allreduce:
    case OperationType::reducescatter:
    case OperationType::allgather:
    case OperationType::broadcast: return !descriptor.alone && !descriptor.tensors.empty();
    default: return false;
  }
}

}  // namespace

bool fusible(const Descriptor& a, const Descriptor& b) {
  return travels_with_others(a) && travels_with_others(b) && a.type == b.type &&
         a.tensors.front().dtype == b.tensors.front().dtype && a.op == b.op && a.root == b.root &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.compression == b.compression &&
         a.average_over == b.average_over && a.device == b.device;
}

std::vector<std::size_t> select_batch(std::span<const Descriptor* const> ready,
                                      std::int64_t threshold) {
  if (ready.empty()) return {};
  std::vector<std::size_t> chosen{0};
  if (threshold <= 1) return chosen;  // no fusion, not even of empty tensors
  std::int64_t room = threshold - bytes_of(*ready.front());
  for (std::size_t i = 1; i < ready.size() && room >= 0; ++i) {
    const std::int64_t bytes = bytes_of(*ready[i]);
    if (bytes > room || !fusible(*ready.front(), *ready[i])) continue;
    chosen.push_back(i);
    room -= bytes;
  }
  return chosen;
}

}  // namespace kolo::internal::fusion
