// SPDX-License-Identifier: Apache-2.0
// The command line of a test program: options with a value, such as `--seed 7`, and flags.
#pragma once

#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo::internal::campaign {

class CommandLine {
 public:
  using Action = std::function<void(const std::string& value)>;

  /// Calls `action` with the value of the option.
  CommandLine& add(const std::string& name, Action action) {
    actions_[name] = std::move(action);
    return *this;
  }
  /// Stores the value of the option: a string, a number, or a list with commas between its
  /// elements.
  template <typename T>
    requires(!std::is_invocable_v<T&, const std::string&>)
  CommandLine& add(const std::string& name, T& variable) {
    return add(name, [&variable, name](const std::string& text) { read(name, text, variable); });
  }
  /// A flag, which has no value.
  CommandLine& add_flag(const std::string& name, bool& flag) {
    flags_[name] = &flag;
    return *this;
  }

  /// Throws InvalidArgument's like of the standard library, `std::invalid_argument`.
  void parse(int argc, char** argv) const {
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (const auto flag = flags_.find(name); flag != flags_.end()) {
        *flag->second = true;
        continue;
      }
      const auto action = actions_.find(name);
      if (action == actions_.end()) throw std::invalid_argument("unknown option " + name);
      if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
      action->second(argv[++i]);
    }
  }

 private:
  static void read(const std::string& /*name*/, const std::string& text, std::string& value) {
    value = text;
  }
  template <typename T>
  static void read(const std::string& name, const std::string& text, std::vector<T>& values) {
    values.clear();
    std::istringstream stream(text);
    for (std::string word; std::getline(stream, word, ',');)
      read(name, word, values.emplace_back());
  }
  template <typename T>
  static void read(const std::string& name, const std::string& text, T& value) {
    std::istringstream stream(text);
    if (!(stream >> value) || !stream.eof())
      throw std::invalid_argument(name + " needs a number, not " + text);
  }

  std::map<std::string, Action> actions_{};
  std::map<std::string, bool*> flags_{};
};

}  // namespace kolo::internal::campaign
