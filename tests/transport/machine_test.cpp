// SPDX-License-Identifier: Apache-2.0
#include "transport/machine.hpp"

#include <gtest/gtest.h>

#include "../training/scratch_directory.hpp"

namespace kolo::internal::transport {
namespace {

namespace fs = std::filesystem;

// Two virtual machines of one snapshot differ in nothing else that a process can read.
TEST(Machine, IsKnownByTheAddressesOfItsHardware) {
  const testing_support::ScratchDirectory directory;
  EXPECT_EQ(detail::hardware_addresses(directory.path()), "");
  fs::create_directories(directory.path() / "lo" / "device");
  EXPECT_EQ(detail::hardware_addresses(directory.path()), "0000000000000000");
}

}  // namespace
}  // namespace kolo::internal::transport
