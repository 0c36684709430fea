// SPDX-License-Identifier: Apache-2.0
#include "gradient_sets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>

#include "elements.hpp"
#include "sizes.hpp"

namespace perf {
namespace {

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stopped != end || number < 0) return std::nullopt;
  return number;
}

/// The numbers between separators; nothing if the text contains anything else.
std::vector<std::int64_t> parse_lengths(std::string_view text) {
  constexpr std::string_view separators = "x,[]() \t\r";
  std::vector<std::int64_t> lengths;
  while (true) {
    const std::size_t begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return lengths;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(separators));
    const auto length = parse_number(word);
    if (!length) return {};
    lengths.push_back(*length);
    text.remove_prefix(word.size());
  }
}

/// True if a machine can hold these sizes, so that products do not overflow.
bool is_possible(std::span<const std::int64_t> lengths) {
  constexpr std::int64_t most = std::int64_t{1} << 40U;
  std::int64_t elements = 1;
  for (const std::int64_t length : lengths) {
    if (length > 0 && elements > most / length) return false;
    elements *= length;
  }
  return true;
}

/// Parses `1000x1KB`; nothing if `which` has another form.
std::optional<Gradients> equal_gradients(const std::string& which, kolo::DType dtype) {
  const std::size_t cross = which.find('x');
  if (cross == std::string::npos) return std::nullopt;
  const auto count = parse_number(std::string_view(which).substr(0, cross));
  if (!count || cross + 1 == which.size() || which[cross + 1] < '0' || which[cross + 1] > '9')
    return std::nullopt;
  if (*count < 1 || *count > 10'000'000)
    throw UsageError("--gradients: '" + which + "' is not of 1 to 10000000 tensors");
  const std::int64_t bytes = parse_bytes("--gradients", which.substr(cross + 1));
  const std::int64_t elements = std::max<std::int64_t>(1, bytes / size_of(dtype));
  Gradients gradients;
  for (std::int64_t i = 0; i < *count; ++i)
    gradients.push_back({"gradient." + std::to_string(i), kolo::Shape(elements)});
  return gradients;
}

}  // namespace

std::int64_t count_elements(const Gradients& gradients) {
  std::int64_t elements = 0;
  for (const Gradient& gradient : gradients) elements += gradient.shape.elements();
  return elements;
}

Gradients read_gradients(std::istream& lines, const std::string& origin) {
  Gradients gradients;
  std::unordered_set<std::string> names;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const auto refuse = [&](const std::string& why) {
      throw UsageError(fmt::format("--gradients: {}, line {}: {}", origin, number, why));
    };
    const std::string_view text = std::string_view(line).substr(0, line.find('#'));
    const std::size_t begin = text.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) continue;
    const std::size_t end = std::min(text.find_first_of(" \t", begin), text.size());
    const std::string name(text.substr(begin, end - begin));
    const std::vector<std::int64_t> lengths = parse_lengths(text.substr(end));
    if (lengths.empty()) refuse("'" + line + "' is not a name and a shape or number of elements");
    if (!is_possible(lengths)) refuse("'" + line + "' has too many elements");
    if (!names.insert(name).second) refuse("there is another '" + name + "'");
    gradients.push_back({name, kolo::Shape(lengths)});
  }
  if (count_elements(gradients) == 0)
    throw UsageError("--gradients: " + origin + " has no elements");
  return gradients;
}

std::string list_gradients(const Gradients& gradients) {
  std::string lines;
  for (const Gradient& gradient : gradients) {
    lines += gradient.name + " ";
    const auto lengths = gradient.shape.lengths();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (i > 0) lines += 'x';
      lines += std::to_string(lengths[i]);
    }
    lines += lengths.empty() ? "1\n" : "\n";
  }
  return lines;
}

Gradients find_gradients(const std::string& which, kolo::DType dtype) {
  if (which == "resnet50") return resnet50();
  if (which == "resnet101") return resnet101();
  if (which == "vgg16") return vgg16();
  if (which == "bert-base") return bert_base();
  if (auto gradients = equal_gradients(which, dtype)) return std::move(*gradients);
  std::ifstream file(which);
  if (!file)
    throw UsageError("--gradients: '" + which +
                     "' is none of resnet50, resnet101, vgg16, bert-base, not like 1000x1KB, and "
                     "not a file that can be read");
  return read_gradients(file, which);
}

}  // namespace perf
