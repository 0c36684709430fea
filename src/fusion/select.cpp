// SPDX-License-Identifier: Apache-2.0
#include "fusion/select.hpp"

#include "base/dtype.hpp"

namespace kolo::internal::fusion {
namespace {

/// The bytes to pack. Tensors whose first length may differ between ranks count as 0: they are not
/// packed.
std::int64_t bytes_of(const Descriptor& descriptor) {
  std::int64_t bytes = 0;
  for (const TensorSpec& tensor : descriptor.tensors) {
    const bool known = tensor.shape.dimensions() == 0 || tensor.shape[0] != any_length;
    if (known) bytes += tensor.shape.elements() * signed_size_of(tensor.dtype);
  }
  return bytes;
}

}  // namespace

bool travels_alone(const Descriptor& descriptor) {
  return !traits_of(descriptor.type).fuses || descriptor.alone || descriptor.tensors.empty();
}

bool fusible(const Descriptor& a, const Descriptor& b) {
  return !travels_alone(a) && !travels_alone(b) && a.type == b.type &&
         a.tensors.front().dtype == b.tensors.front().dtype && a.op == b.op && a.root == b.root &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.compression == b.compression &&
         a.average_over == b.average_over && a.device == b.device;
}

std::vector<std::size_t> select_batch(std::size_t count,
                                      const std::function<const Descriptor&(std::size_t)>& ready,
                                      std::int64_t threshold) {
  if (count == 0) return {};
  const Descriptor& first = ready(0);
  std::vector<std::size_t> chosen{0};
  // A threshold of 0 or 1 disables fusion, even that of empty tensors.
  if (threshold <= 1 || travels_alone(first)) return chosen;
  std::int64_t room = threshold - bytes_of(first);
  int passed_over = 0;
  for (std::size_t i = 1; i < count && room >= 0 && passed_over < max_passed_over; ++i) {
    const Descriptor& next = ready(i);
    if (!fusible(first, next)) continue;
    const std::int64_t bytes = bytes_of(next);
    // A smaller operation behind this one may still fit.
    if (bytes > room) {
      ++passed_over;
      continue;
    }
    chosen.push_back(i);
    room -= bytes;
  }
  return chosen;
}

}  // namespace kolo::internal::fusion
