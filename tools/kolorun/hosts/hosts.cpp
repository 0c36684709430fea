// SPDX-License-Identifier: Apache-2.0
#include "hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "kolorun/options.hpp"
#include "transport/machine.hpp"
#include "transport/socket_address.hpp"
#include "transport/sockets.hpp"

namespace kolorun {
namespace {

int parse_slots(std::string_view text, const std::string& where) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1 ||
      slots > rendezvous::max_ranks)
    throw UsageError(fmt::format("{}: '{}' is not a number of slots", where, text));
  return slots;
}

/// Parses "a", "a:4", "[fd00::1]:4" or, without slots, "fd00::1".
Host parse_host(std::string_view text, int slots, const std::string& where) {
  Host host{.slots = slots};
  const bool has_brackets = text.starts_with('[') && text.find(']') != std::string_view::npos;
  const std::size_t after = has_brackets ? text.find(']') + 1 : 0;
  const std::size_t colon = text.find(':', after);
  const bool has_slots = colon != std::string_view::npos && text.rfind(':') == colon;
  const std::string_view name = has_slots ? text.substr(0, colon) : text;
  if (has_slots) host.slots = parse_slots(text.substr(colon + 1), where);
  host.name = has_brackets ? name.substr(1, name.size() - 2) : name;
  const bool is_name = !host.name.empty() && host.name.size() <= rendezvous::max_name &&
                       std::ranges::all_of(host.name, [](char c) {
                         return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                                std::string_view("-_.:@%").find(c) != std::string_view::npos;
                       });
  // A leading '-' is rejected, because ssh would take the name for an option.
  if (!is_name || host.name.front() == '-')
    throw UsageError(fmt::format("{}: '{}' is not a host name", where, text));
  return host;
}

}  // namespace

void add_host(std::vector<Host>& hosts, const Host& host) {
  const auto same = std::ranges::find(hosts, host.name, &Host::name);
  if (same == hosts.end())
    hosts.push_back(host);
  else
    same->slots += host.slots;
}

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    add_host(hosts, parse_host(text.substr(begin, end - begin), 1, "-H"));
    begin = end + 1;
  }
  return hosts;
}

std::vector<Host> parse_host_lines(std::string_view text, int slots, const std::string& source) {
  std::vector<Host> hosts;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string where = fmt::format("{}, line {}", source, number);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) continue;
    Host host = parse_host(word, slots, where);
    while (words >> word) {
      if (!word.starts_with("slots="))
        throw UsageError(fmt::format("{}: '{}' is not slots=N", where, word));
      host.slots = parse_slots(std::string_view(word).substr(6), where);
    }
    add_host(hosts, host);
  }
  return hosts;
}

std::vector<Host> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw UsageError(fmt::format("--hostfile: '{}' cannot be read, or is empty", path));
  std::vector<Host> hosts = parse_host_lines(text.str(), 1, path);
  if (hosts.empty()) throw UsageError(fmt::format("--hostfile: '{}' has no hosts", path));
  return hosts;
}

bool is_address(const std::string& name) {
  return transport::SocketAddress::parse(name).family != AF_UNSPEC;
}

bool is_this_host(const std::string& name) {
  const std::string own = transport::host_name();
  if (name == "localhost" || name == own || name == own.substr(0, own.find('.'))) return true;
  const transport::SocketAddress address = transport::SocketAddress::parse(name);
  if (address.family == AF_UNSPEC) return false;
  return address.is_loopback() ||
         std::ranges::any_of(transport::list_interfaces(),
                             [&](const auto& interface) { return interface.address == address; });
}

}  // namespace kolorun
