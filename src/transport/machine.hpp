// SPDX-License-Identifier: Apache-2.0
// Identifies the machine of a process, to find out which processes share one.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netpacket/packet.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "node/host_lock.hpp"

namespace kolo::internal::transport {
namespace detail {

/// Identifies a directory or a kernel namespace; none if it is hidden from this process.
[[nodiscard]] inline std::optional<std::string> identity_of(const char* path) {
  struct ::stat space {};
  if (::stat(path, &space) != 0) return std::nullopt;
  return fmt::format("{} {}", space.st_dev, space.st_ino);
}

/// The hardware addresses of the machine's network devices; none if they cannot be read. They
/// differ between virtual machines that were resumed from one snapshot, which have the same boot
/// ID. Devices that are no hardware, such as those of containers, are left out, since they come and
/// go. Needs one descriptor at a time: a rank that is short of them must not pass for another
/// machine.
[[nodiscard]] inline std::optional<std::string> hardware_addresses(
    const std::string& devices = "/sys/class/net") {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  std::set<std::string> addresses;
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_PACKET ||
        !identity_of((devices + '/' + each->ifa_name + "/device").c_str()))
      continue;
    const auto& address = *reinterpret_cast<const sockaddr_ll*>(each->ifa_addr);
    std::string text;
    for (const unsigned char byte : address.sll_addr) text += fmt::format("{:02x}", byte);
    addresses.insert(text);
  }
  return fmt::format("{}", fmt::join(addresses, " "));
}

/// Identifies the running kernel by its boot ID and hardware, together with the network namespace;
/// none if either is hidden from this process.
[[nodiscard]] inline std::optional<std::string> name_of_network() {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  const auto space = identity_of("/proc/self/ns/net");
  if (!std::getline(file, boot) || !space) return std::nullopt;
  file.close();
  const auto hardware = hardware_addresses();
  if (!hardware) return std::nullopt;
  return boot + " " + *hardware + " " + *space;
}

}  // namespace detail

/// This host's name.
[[nodiscard]] inline std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Processes with the same name can share memory: they run on the same kernel, in the same network
/// and PID namespaces, and have the same directory in which they meet.
/// If these are hidden from this process, the name is unique to the process.
[[nodiscard]] inline std::string machine_name() {
  const auto network = detail::name_of_network();
  const auto processes = detail::identity_of("/proc/self/ns/pid");
  const auto meeting_point = detail::identity_of(node::meeting_directory());
  if (!network || !processes || !meeting_point)
    return fmt::format("{} {}", host_name(), ::getpid());
  return *network + " " + *processes + " " + *meeting_point;
}

/// Processes with the same number share the loopback interface: they run on the same kernel, in the
/// same network namespace. 0 if these are hidden from this process.
[[nodiscard]] inline std::uint64_t loopback_number() {
  const auto network = detail::name_of_network();
  return network ? std::hash<std::string>()(*network) : 0;
}

}  // namespace kolo::internal::transport
