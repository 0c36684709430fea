// SPDX-License-Identifier: Apache-2.0
#include "transport/machine.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <optional>

namespace kolo::internal::transport {
namespace {

/// Identifies a kernel namespace; none if it is hidden from this process.
std::optional<std::string> name_of_namespace(const char* path) {
  struct ::stat space {};
  if (::stat(path, &space) != 0) return std::nullopt;
  return fmt::format("{} {}", space.st_dev, space.st_ino);
}

/// Identifies the running kernel by its boot ID, together with the network namespace; none if
/// either is hidden from this process.
std::optional<std::string> name_of_network() {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  const auto space = name_of_namespace("/proc/self/ns/net");
  if (!std::getline(file, boot) || !space) return std::nullopt;
  return boot + " " + *space;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string machine_name() {
  const auto network = name_of_network();
  const auto processes = name_of_namespace("/proc/self/ns/pid");
  if (!network || !processes) return fmt::format("{} {}", host_name(), ::getpid());
  return *network + " " + *processes;
}

std::uint64_t loopback_number() {
  const auto network = name_of_network();
  return network ? std::hash<std::string>()(*network) : 0;
}

}  // namespace kolo::internal::transport
