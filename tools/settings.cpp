// SPDX-License-Identifier: Apache-2.0
// Prints the table of docs/settings.md from the table of settings:
//
//     kolo-settings                 prints it
//     kolo-settings --write FILE    puts it between the markers in FILE
//     kolo-settings --check FILE    fails if FILE differs
//     kolo-settings --dictionary    prints names and words for the fuzzer
#include "base/settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace kolo::internal;

constexpr std::string_view begin_marker = "<!-- kolo-settings: begin -->\n";
constexpr std::string_view end_marker = "<!-- kolo-settings: end -->\n";

std::string code(std::string_view text) { return fmt::format("`{}`", text); }

/// A setting's valid values and its default, as the columns of the document show them.
struct Columns {
  std::string values;
  std::string initially;
};

Columns columns_of(const CountSetting& type) {
  constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max();
  return {type.max == unbounded ? std::string(type.unit)
                                : fmt::format("{}, at most {}", type.unit, type.max),
          std::to_string(Settings().*type.value)};
}

Columns columns_of(const SecondsSetting& type) {
  const std::chrono::duration<double> initially = Settings().*type.value;
  return {type.min == 0.0 ? "seconds" : fmt::format("seconds, 0 or at least {}", type.min),
          fmt::format("{}", initially.count())};
}

Columns columns_of(const SwitchSetting& type) {
  return {"`on`, `1`, `off`, `0`", code(Settings().*type.value ? "on" : "off")};
}

template <typename Enumeration>
Columns columns_of(const WordSetting<Enumeration>& type) {
  const auto initially = static_cast<std::size_t>(Settings().*type.value);
  return {fmt::format("`{}`", fmt::join(type.words, "`, `")), code(type.words[initially])};
}

Columns columns_of(const TextSetting& type) {
  const std::string initially = Settings().*type.value;
  return {std::string(type.unit), initially.empty() ? "none" : code(initially)};
}

template <typename Names>
std::string names_of(const Names& names) {
  std::vector<std::string_view> words;
  for (const kolo::internal::SignalName& each : names) words.push_back(each.name);
  return fmt::format("`{}`", fmt::join(words, "`, `"));
}

Columns columns_of(const SignalSetting& type) { return {names_of(type.names), "none"}; }

Columns columns_of(const SignalsSetting& type) {
  std::string initially;
  const Settings defaults;
  for (const int signal : defaults.*type.value)
    for (const auto& [name, number] : type.names)
      if (number == signal) initially += (initially.empty() ? "" : ",") + std::string(name);
  return {fmt::format("{}, with commas, or `none`", names_of(type.names)), code(initially)};
}

Columns columns_of(const InterfaceSetting& /*type*/) {
  return {"interfaces and networks, or `none`", "all"};
}

Columns columns_of(const PortRangeSetting& /*type*/) { return {"two ports: `46000:46099`", "any"}; }

std::string variables_of(const Setting& setting) {
  const std::string own = code(variable_of(setting));
  return setting.other_variable.empty() ? own : own + ", " + code(setting.other_variable);
}

std::string table() {
  std::string settings =
      "| option | variables | value | default | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Setting& setting : settings_table) {
    if (setting.meaning.empty()) continue;
    const Columns columns =
        std::visit([](const auto& type) { return columns_of(type); }, setting.type);
    settings += fmt::format("| `{}` | {} | {} | {} | {} |\n", setting.name, variables_of(setting),
                            columns.values, columns.initially, setting.meaning);
  }
  return settings;
}

std::string dictionary() {
  std::string all;
  for (const Setting& setting : settings_table) {
    all += fmt::format("\"{}=\"\n", variable_of(setting));
    if (!setting.other_variable.empty()) all += fmt::format("\"{}=\"\n", setting.other_variable);
    std::visit(
        [&](const auto& type) {
          if constexpr (requires { type.words; })
            all += fmt::format("\"{}\"\n", fmt::join(type.words, "\"\n\""));
        },
        setting.type);
  }
  return all;
}

std::string read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The document with an up-to-date table.
std::string with_table(const std::string& document) {
  const std::size_t begin = document.find(begin_marker);
  const std::size_t end = document.find(end_marker);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    throw std::runtime_error("the markers of the table are missing");
  return document.substr(0, begin + begin_marker.size()) + table() + document.substr(end);
}

int run(const std::vector<std::string>& arguments) {
  const std::string what = arguments.empty() ? "" : arguments.front();
  if (arguments.empty()) {
    std::fputs(table().c_str(), stdout);
  } else if (arguments.size() == 1 && what == "--dictionary") {
    std::fputs(dictionary().c_str(), stdout);
  } else if (arguments.size() == 2 && what == "--write") {
    const std::string whole = with_table(read(arguments[1]));
    std::ofstream file(arguments[1]);
    file << whole << std::flush;
    if (!file) throw std::runtime_error(arguments[1] + " cannot be written");
  } else if (arguments.size() == 2 && what == "--check") {
    const std::string document = read(arguments[1]);
    if (document != with_table(document))
      throw std::runtime_error(arguments[1] +
                               " is not what the table of settings says: ./dev docs");
  } else {
    throw std::runtime_error("usage: kolo-settings [--write FILE | --check FILE | --dictionary]");
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kolo-settings: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
