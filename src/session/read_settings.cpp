// SPDX-License-Identifier: Apache-2.0
#include "session/read_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>

#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::session {
namespace {

/// A value as the user wrote it.
struct Source {
  std::string name;  // the setting in messages
  std::string text;
  bool meant_for_kolo = true;  // false for another library's variable
};

[[noreturn]] void refuse(const Source& source, std::string_view wanted) {
  throw InvalidArgument(fmt::format("{}={}: {}", source.name, source.text, wanted));
}

// Options are converted to text, so that one parser checks the bounds of options and variables.
// Nothing is lost: fmt prints the shortest text that reads back as the same double.
std::string to_text(std::int64_t count) { return std::to_string(count); }
std::string to_text(std::chrono::duration<double> time) { return fmt::format("{}", time.count()); }
std::string to_text(bool on) { return on ? "on" : "off"; }
std::string to_text(const std::string& text) { return text; }

std::optional<Source> find_variable(const Setting& setting) {
  const std::string own = variable_of(setting);
  for (const std::string& name : {own, std::string(setting.other_variable)}) {
    const char* text = name.empty() ? nullptr : std::getenv(name.c_str());
    if (text != nullptr && *text != '\0') return Source{name, text, name == own};
  }
  return std::nullopt;
}

template <typename Number>
std::optional<Number> parse(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

/// The words as "a, b or c".
template <typename Words>
std::string one_of(const Words& words) {
  return fmt::format("{} or {}", fmt::join(words.begin(), std::prev(words.end()), ", "),
                     words.back());
}

/// Also accepts the prefix SIG.
template <typename Names>
int signal_of(const Source& source, std::string_view text, const Names& names,
              std::string_view wanted) {
  if (text.starts_with("SIG")) text.remove_prefix(3);
  const auto found = std::ranges::find(names, text, &SignalName::name);
  if (found != names.end()) return found->number;
  std::vector<std::string_view> words;
  for (const SignalName& each : names) words.push_back(each.name);
  refuse(source, std::string(wanted) + one_of(words));
}

// ---- the values that each kind of setting accepts ----

void set(Settings& settings, const CountSetting& type, const Source& source) {
  const std::optional<std::int64_t> value = parse<std::int64_t>(source.text);
  if (!value || *value < 0)
    refuse(source, fmt::format("must be a number of {}, 0 or more", type.unit));
  if (*value > type.max) refuse(source, fmt::format("must be at most {} {}", type.max, type.unit));
  settings.*type.value = *value;
}

void set(Settings& settings, const SecondsSetting& type, const Source& source) {
  const std::optional<double> value = parse<double>(source.text);
  if (!value || !(*value == 0.0 || (*value >= type.min && *value <= type.max)))  // also for NaN
    refuse(source, type.min == 0.0
                       ? "must be a number of seconds from 0 to 1e9"
                       : fmt::format("must be 0 or a number of seconds from {} to 1e9", type.min));
  settings.*type.value =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(*value));
}

void set(Settings& settings, const SwitchSetting& type, const Source& source) {
  const bool on = source.text == "on" || source.text == "1";
  if (!on && source.text != "off" && source.text != "0") refuse(source, "must be on, 1, off or 0");
  settings.*type.value = on;
}

template <typename Enumeration>
void set(Settings& settings, const WordSetting<Enumeration>& type, const Source& source) {
  const auto found = std::ranges::find(type.words, source.text);
  if (found == type.words.end()) refuse(source, "must be " + one_of(type.words));
  settings.*type.value = static_cast<Enumeration>(found - type.words.begin());
}

/// Also accepts capitals and Horovod's names of the levels.
void set(Settings& settings, const WordSetting<LogLevel>& type, const Source& source) {
  const std::optional<LogLevel> level = parse_log_level(source.text);
  if (!level) refuse(source, "must be " + one_of(type.words));
  settings.*type.value = *level;
}

void set(Settings& settings, const TextSetting& type, const Source& source) {
  if (!source.text.empty() && source.text != type.ignored) settings.*type.value = source.text;
}

/// Makes a path absolute, since the program may change its working directory during the session.
void resolve(Settings& settings, const TextSetting& type) {
  std::string& text = settings.*type.value;
  if (!type.path_unless || text.empty() || text == *type.path_unless) return;
  std::error_code unknown;  // the working directory may have been removed: the path stays as it is
  if (const auto path = std::filesystem::absolute(text, unknown); !unknown) text = path.string();
}

void set(Settings& settings, const SignalSetting& type, const Source& source) {
  if (source.text.empty()) return;
  settings.*type.value = signal_of(source, source.text, type.names, "must be ");
}

void set(Settings& settings, const SignalsSetting& type, const Source& source) {
  if (source.text.empty()) return;
  std::vector<int> signals;
  std::string_view rest = source.text;
  if (rest == "none") rest = {};
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    signals.push_back(
        signal_of(source, rest.substr(0, comma), type.names, "must be none, or a list of "));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  settings.*type.value = signals;
}

void set(Settings& settings, const InterfaceSetting& type, const Source& source) {
  settings.*type.value = {source.text, source.name, source.meant_for_kolo && !source.text.empty()};
}

void set(Settings& settings, const PortRangeSetting& type, const Source& source) {
  if (source.text.empty()) return;
  const std::optional<PortRange> range = PortRange::parse(source.text);
  if (!range) refuse(source, "must be two ports from 1 to 65535, such as 46000:46099");
  settings.*type.value = *range;
}

/// Returns true if the setting is given.
template <typename Type>
bool read(Settings& settings, const Setting& setting, const Type& type,
          const SessionOptions& options) {
  if (type.option != nullptr && options.*type.option) {
    set(settings, type, {std::string(setting.name), to_text(*(options.*type.option))});
  } else if (const auto named = options.by_name.find(std::string(setting.name));
             named != options.by_name.end() && type.option != nullptr) {
    set(settings, type, {named->first, named->second});
  } else if (const auto source = find_variable(setting)) {
    set(settings, type, *source);
  } else {
    return false;
  }
  return true;
}

/// Throws unless programs may set the setting of this name.
void require_setting(const std::string& name, const std::string& text) {
  std::vector<std::string> known;
  for (const Setting& setting : settings_table)
    if (std::visit([](const auto& type) { return type.option != nullptr; }, setting.type))
      known.emplace_back(setting.name);
  if (std::ranges::find(known, name) != known.end()) return;
  const std::string near = nearest_name(name, known);
  refuse({name, text}, near.empty() ? "there is no setting of this name"
                                    : "there is no setting of this name; did you mean " + near);
}

/// A timeout that must end before `stall_shutdown`, since it says more about the cause.
struct EarlierTimeout {
  std::string_view name;
  std::chrono::nanoseconds Settings::*value;
  double part;                     // share of `stall_shutdown`, if it is not given
  std::chrono::nanoseconds least;  // minimum, if it is not given: ranks of a busy machine are late
  std::string_view otherwise;      // consequence if it does not end before
};

constexpr auto earlier_timeouts = std::to_array<EarlierTimeout>(
    {{"stall_warning", &Settings::stall_warning, 0.5, {}, "no warning comes before the end"},
     {"peer_timeout", &Settings::peer_timeout, 0.5, std::chrono::seconds(10),
      "a host that is lost is reported as ranks that are late"},
     {"nccl_timeout",
      &Settings::nccl_timeout,
      1.0,
      {},
      "a communicator that cannot be made is reported as a batch without progress"}});

void order_timeouts(Settings& settings, const std::set<std::string_view>& given) {
  const std::chrono::nanoseconds end = settings.stall_shutdown;
  if (end == std::chrono::nanoseconds{}) return;
  for (const EarlierTimeout& each : earlier_timeouts) {
    std::chrono::nanoseconds& value = settings.*each.value;
    if (!given.contains(each.name)) {
      const auto part = std::chrono::duration_cast<std::chrono::nanoseconds>(end * each.part);
      value = std::min(value, std::max(part, each.least));
    } else if (value > end) {
      settings.timeouts_out_of_order.push_back(
          fmt::format("{} ({} s) does not end before stall_shutdown ({} s), so {}", each.name,
                      std::chrono::duration<double>(value).count(),
                      std::chrono::duration<double>(end).count(), each.otherwise));
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> find_misspelled_variables() {
  constexpr std::string_view prefix = "KOLO_";
  // Variables of the launcher and the rendezvous, which are not in the table of settings.
  std::vector<std::string> known{
      "LAUNCHER",          "RENDEZVOUS",         "RENDEZVOUS_PORT", "RENDEZVOUS_PROCESS",
      "RENDEZVOUS_SECRET", "RENDEZVOUS_STANDBY", "RESTARTS",        "RSH"};
  for (const Setting& setting : settings_table)
    known.push_back(variable_of(setting).substr(prefix.size()));
  std::vector<std::pair<std::string, std::string>> misspelled;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with(prefix)) continue;
    const std::string name(text.substr(prefix.size(), text.find('=') - prefix.size()));
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string near = nearest_name(name, known);
    if (!near.empty())
      misspelled.emplace_back(std::string(prefix) + name, std::string(prefix) + near);
  }
  return misspelled;
}

Settings read_settings(const SessionOptions& options) {
  Settings settings;
  std::set<std::string_view> given;
  for (const auto& [name, text] : options.by_name) require_setting(name, text);
  for (const Setting& setting : settings_table)
    if (std::visit([&](const auto& type) { return read(settings, setting, type, options); },
                   setting.type))
      given.insert(setting.name);
  order_timeouts(settings, given);
  for (const Setting& setting : settings_table)
    if (const auto* text = std::get_if<TextSetting>(&setting.type)) resolve(settings, *text);
  return settings;
}

}  // namespace kolo::internal::session
