// SPDX-License-Identifier: Apache-2.0
#include "transport/machine.hpp"

#include <gtest/gtest.h>

#include "../training/scratch_directory.hpp"

namespace kolo::internal::transport {
namespace {

namespace fs = std::filesystem;

void add_device(const fs::path& devices, const std::string& name, const std::string& address,
                bool is_hardware) {
  fs::create_directories(devices / name);
  std::ofstream(devices / name / "address") << address << '\n';
  if (is_hardware) fs::create_directory(devices / name / "device");
}

// Two virtual machines of one snapshot differ in nothing else that a process can read.
TEST(Machine, IsKnownByItsHardwareAddresses) {
  const testing_support::ScratchDirectory directory;
  const fs::path devices = directory.path() / "net";
  EXPECT_EQ(detail::hardware_addresses(devices), "");
  add_device(devices, "lo", "00:00:00:00:00:00", false);
  add_device(devices, "veth1", "aa:00:00:00:00:01", false);
  EXPECT_EQ(detail::hardware_addresses(devices), "");
  add_device(devices, "eth1", "52:00:00:00:00:02", true);
  add_device(devices, "eth0", "52:00:00:00:00:01", true);
  EXPECT_EQ(detail::hardware_addresses(devices), "52:00:00:00:00:01 52:00:00:00:00:02");
}

}  // namespace
}  // namespace kolo::internal::transport
