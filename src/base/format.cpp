// SPDX-License-Identifier: Apache-2.0
#include "base/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/enumerators.hpp"

namespace kolo::internal {
namespace {

/// The Levenshtein distance: the number of characters to change, add or remove.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

using namespace std::string_view_literals;

/// The name of `value`; `names` lists the enumerators in their order.
template <typename Enumeration, std::size_t count>
std::string_view name_in(const std::array<std::string_view, count>& names, Enumeration value) {
  static_assert(count == enumerator_count<Enumeration>);
  const auto index = static_cast<std::size_t>(value);
  return index < count ? names[index] : "unknown";
}

}  // namespace

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t length : shape.lengths()) {
    if (text.size() > 1) text += ", ";
    text += length == any_length ? "*" : std::to_string(length);
  }
  return text + ']';
}

std::string_view to_string(DType dtype) { return traits_of(dtype).name; }

std::string_view to_string(OperationType type) { return traits_of(type).name; }

std::string_view to_string(ReduceOp op) {
  static constexpr std::array names{"average"sv, "sum"sv,     "min"sv,
                                    "max"sv,     "product"sv, "adasum"sv};
  return name_in(names, op);
}

std::string_view to_string(Compression compression) {
  static constexpr std::array names{"none"sv, "fp16"sv, "bf16"sv};
  return name_in(names, compression);
}

std::string_view to_string(AverageOver over) {
  static constexpr std::array names{"all"sv, "present"sv};
  return name_in(names, over);
}

std::string to_string(Device device) {
  if (device.type == DeviceType::cpu) return "cpu";
  if (device == gpu_of_graph) return "cuda, captured into a graph";
  if (device == gpu_before_graph) return "cuda, in a GraphWarmUp";
  return device.index < 0 ? "cuda" : fmt::format("cuda:{}", device.index);
}

std::string to_string(const Descriptor& descriptor) {
  std::string text(to_string(descriptor.type));
  if (traits_of(descriptor.type).reduces) text += fmt::format(" {}", to_string(descriptor.op));
  const char* separator = " ";
  for (const TensorSpec& tensor : descriptor.tensors) {
    text += fmt::format("{}{} {}", separator, to_string(tensor.dtype), to_string(tensor.shape));
    separator = ", ";
  }
  if (descriptor.root != -1)
    text += fmt::format(" {} rank {}", traits_of(descriptor.type).root_sends ? "from" : "to",
                        descriptor.root);
  if (descriptor.device != Device{}) text += fmt::format(" on {}", to_string(descriptor.device));
  if (descriptor.prescale != 1.0) text += fmt::format(", prescale {}", descriptor.prescale);
  if (descriptor.postscale != 1.0) text += fmt::format(", postscale {}", descriptor.postscale);
  if (descriptor.compression != Compression::none)
    text += fmt::format(", compressed to {}", to_string(descriptor.compression));
  if (descriptor.step != 0) text += fmt::format(", step {}", descriptor.step);
  if (!descriptor.ranks.empty()) text += fmt::format(" of ranks {}", to_string(descriptor.ranks));
  return text;
}

std::string nearest_name(const std::string& wanted, std::span<const std::string> names) {
  constexpr std::size_t max_length = 256;  // longer names are not compared: the cost is quadratic
  std::string nearest;
  // At most a third of the characters may differ, or one in a short name.
  std::size_t min_distance = std::max<std::size_t>(wanted.size() / 3, 1) + 1;
  for (const std::string& name : names) {
    if (name.empty() || name == wanted || std::max(name.size(), wanted.size()) > max_length)
      continue;
    const std::size_t apart = distance(wanted, name);
    // With as many changes as characters, nothing of the name would remain.
    if (apart >= min_distance || apart >= std::min(wanted.size(), name.size())) continue;
    min_distance = apart;
    nearest = name;
  }
  return nearest;
}

}  // namespace kolo::internal
