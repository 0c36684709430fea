#include "fusion/plan.hpp"

#include "base/dtype.hpp"

namespace kolo::fusion {
namespace {

std::int64_t bytes_of(const Descriptor& descriptor) {
  return descriptor.shape.elements() * static_cast<std::int64_t>(size_of(descriptor.dtype));
}

}  // namespace

bool fusible(const Descriptor& a, const Descriptor& b) {
  const bool has_tensor = a.type == OperationType::allreduce || a.type == OperationType::broadcast;
  return has_tensor && a.type == b.type && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.device == b.device;
}

std::vector<std::size_t> plan_batch(std::span<const Descriptor* const> ready,
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

}  // namespace kolo::fusion
