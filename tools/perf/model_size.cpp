// SPDX-License-Identifier: Apache-2.0
// The sizes of a model's units, from its file or a number.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "gradient_sets.hpp"
#include "memory_plan.hpp"

namespace perf {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t max_parameters = std::int64_t{1} << 50U;
constexpr std::uint64_t max_header = 100'000'000;  // as in the format's reference implementation

UsageError unreadable(const fs::path& path, const std::string& why) {
  return UsageError("--memory-plan: '" + path.string() + "' " + why);
}

/// Parses 1000, 124M, 1.5B or 7B; nothing if the text has another form.
std::optional<std::int64_t> parse_count(const std::string& text) {
  double number = 0.0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return std::nullopt;
  const std::string suffix(stopped, end);
  const double scale = suffix.empty()                   ? 1.0
                       : suffix == "K" || suffix == "k" ? 1e3
                       : suffix == "M" || suffix == "m" ? 1e6
                       : suffix == "B" || suffix == "G" ? 1e9
                                                        : 0.0;
  if (scale == 0.0 || number * scale > static_cast<double>(max_parameters)) return std::nullopt;
  return std::llround(number * scale);
}

using Counts = std::map<std::string, std::int64_t>;

/// The tensors in the header of a safetensors file.
void add_safetensors(const fs::path& path, Counts& counts) {
  std::ifstream file(path, std::ios::binary);
  std::array<unsigned char, 8> length_bytes{};
  if (!file.read(reinterpret_cast<char*>(length_bytes.data()), length_bytes.size()))
    throw unreadable(path, "cannot be read");
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes.size(); i-- > 0;) length = length << 8U | length_bytes.at(i);
  if (length > max_header) throw unreadable(path, "is not a safetensors file");
  std::string header(length, '\0');
  file.read(header.data(), static_cast<std::streamsize>(length));
  const Json tensors = Json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!file || !tensors.is_object()) throw unreadable(path, "is not a safetensors file");
  for (const auto& [name, tensor] : tensors.items()) {
    if (name == "__metadata__") continue;
    const Json shape = tensor.is_object() ? tensor.value("shape", Json()) : Json();
    if (!shape.is_array()) throw unreadable(path, "has no shape of '" + name + "'");
    std::int64_t elements = 1;
    for (const Json& extent : shape) {
      const auto number = extent.is_number_unsigned() ? extent.get<std::uint64_t>() : UINT64_MAX;
      if (number > static_cast<std::uint64_t>(max_parameters / std::max<std::int64_t>(elements, 1)))
        throw unreadable(path, "has a wrong shape of '" + name + "'");
      elements *= static_cast<std::int64_t>(number);
    }
    counts[name] = elements;
  }
}

void add_index(const fs::path& path, Counts& counts) {
  std::ifstream file(path);
  const Json index = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  const Json names = index.is_object() ? index.value("weight_map", Json()) : Json();
  if (!names.is_object()) throw unreadable(path, "is not the index of safetensors files");
  std::set<std::string> files;
  for (const Json& name : names) files.insert(name.is_string() ? name.get<std::string>() : "");
  for (const std::string& name : files) add_safetensors(path.parent_path() / name, counts);
}

fs::path file_in(const fs::path& folder) {
  for (const char* const name : {"model.safetensors.index.json", "model.safetensors"})
    if (fs::exists(folder / name)) return folder / name;
  throw unreadable(folder, "has neither model.safetensors.index.json nor model.safetensors");
}

/// A model that is not a safetensors file. The messages of errors name this flag.
Gradients find_listed(const std::string& which) {
  constexpr std::string_view other_flag = "--gradients";
  try {
    return find_gradients(which, kolo::DType::f32);
  } catch (const UsageError& error) {
    const std::string text = error.what();
    if (!text.starts_with(other_flag)) throw;
    throw UsageError("--memory-plan" + text.substr(other_flag.size()));
  }
}

Counts read_counts(const std::string& which) {
  const fs::path path = fs::is_directory(which) ? file_in(which) : fs::path(which);
  Counts counts;
  if (path.string().ends_with(".index.json")) {
    add_index(path, counts);
  } else if (path.extension() == ".safetensors") {
    add_safetensors(path, counts);
  } else {
    for (const Gradient& gradient : find_listed(which))
      counts[gradient.name] = gradient.shape.elements();
  }
  return counts;
}

/// `layers.3` of `layers.3.weight`; "" for names without a number.
std::string layer_of(const std::string& name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const auto is_digit = [](char character) { return character >= '0' && character <= '9'; };
    if (begin < end && end < name.size() &&
        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin),
                    name.begin() + static_cast<std::ptrdiff_t>(end), is_digit))
      return name.substr(0, end);
    begin = end + 1;
  }
  return "";
}

ModelSize size_of_units(const Counts& counts) {
  Counts units;
  ModelSize size;
  for (const auto& [name, elements] : counts) {
    size.all += elements;
    if (size.all > max_parameters) throw UsageError("--memory-plan: too many parameters");
    const std::string unit = layer_of(name);
    (unit.empty() ? size.root : units[unit]) += elements;
  }
  for (const auto& [unit, elements] : units) size.largest = std::max(size.largest, elements);
  return size;
}

}  // namespace

ModelSize find_model_size(const std::string& which, const std::optional<std::string>& unit) {
  const std::optional<std::int64_t> count = parse_count(which);
  if (count && !unit)
    throw UsageError("--memory-plan: " + which +
                     " is a number of parameters, so --unit must give that of the largest unit");
  ModelSize size = count ? ModelSize{.all = *count} : size_of_units(read_counts(which));
  if (unit) {
    const std::optional<std::int64_t> largest = parse_count(*unit);
    if (!largest || *largest > size.all)
      throw UsageError("--unit: '" + *unit + "' is not a number of parameters of this model");
    size.largest = *largest;
  }
  if (size.all == 0) throw UsageError("--memory-plan: '" + which + "' has no parameters");
  return size;
}

}  // namespace perf
