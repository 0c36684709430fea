// SPDX-License-Identifier: Apache-2.0
#include "transport/socket_address.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>

#include "kolo/error.hpp"

namespace kolo::internal::transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SocketAddress address(const char* text) {
  SocketAddress result;
  result.family = std::string(text).find(':') == std::string::npos ? AF_INET : AF_INET6;
  EXPECT_EQ(::inet_pton(result.family, text, result.bytes.data()), 1) << text;
  return result;
}

const std::vector<Interface>& host() {
  static const std::vector<Interface> interfaces{
      {"lo", address("127.0.0.1")},    {"eth0", address("10.1.0.7")},
      {"eth0", address("10.1.128.7")}, {"ib0", address("192.168.5.1")},
      {"lo", address("::1")},          {"ib0", address("fd00:5::1")}};
  return interfaces;
}

std::vector<std::string> chosen(const char* wanted) {
  std::vector<std::string> texts;
  for (const SocketAddress& one : choose_addresses(host(), wanted)) texts.push_back(to_string(one));
  return texts;
}

std::string refusal(const char* wanted) {
  try {
    (void)choose_addresses(host(), wanted);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SocketAddressText, IsParsedIfItIsNumeric) {
  EXPECT_EQ(SocketAddress::parse("10.1.0.7"), address("10.1.0.7"));
  EXPECT_EQ(SocketAddress::parse("fd00::7"), address("fd00::7"));
  for (const char* text : {"", "localhost", "10.1.0.7:80", "[fd00::7]", "fd00::7::"})
    EXPECT_EQ(SocketAddress::parse(text).family, AF_UNSPEC) << text;
}

TEST(Interfaces, AllButLoopbackIfNothingIsWanted) {
  EXPECT_THAT(chosen(""), ElementsAre("10.1.0.7", "10.1.128.7", "192.168.5.1", "fd00:5::1"));
  EXPECT_TRUE(choose_addresses({{"lo", address("127.0.0.1")}}, "").empty());
}

TEST(Interfaces, ByNameOrNetworkInTheOrderOfTheWish) {
  EXPECT_THAT(chosen("eth0"), ElementsAre("10.1.0.7", "10.1.128.7"));
  EXPECT_THAT(chosen("lo"), ElementsAre("127.0.0.1", "::1"));
  EXPECT_THAT(chosen("ib0,eth0"),
              ElementsAre("192.168.5.1", "fd00:5::1", "10.1.0.7", "10.1.128.7"));
  EXPECT_THAT(chosen("10.1.0.0/17"), ElementsAre("10.1.0.7"));
  EXPECT_THAT(chosen("10.1.0.0/16"), ElementsAre("10.1.0.7", "10.1.128.7"));
  EXPECT_THAT(chosen("10.1.0.7/32,10.0.0.0/8"), ElementsAre("10.1.0.7", "10.1.128.7"));
  EXPECT_THAT(chosen("fd00::/16"), ElementsAre("fd00:5::1"));
  EXPECT_THAT(chosen("0.0.0.0/0").size(), testing::Eq(4));
  EXPECT_THAT(chosen("absent,ib0"), ElementsAre("192.168.5.1", "fd00:5::1"));
}

TEST(Interfaces, WhatIsNotThereIsRefusedWithWhatIs) {
  for (const char* wanted : {"eth7", "172.16.0.0/12", "eth7,172.16.0.0/12", "eth", ","})
    EXPECT_THAT(refusal(wanted), HasSubstr("no interface that is up and has an address; there are "
                                           "lo (127.0.0.1), eth0 (10.1.0.7)"))
        << wanted;
}

TEST(Interfaces, WhatIsNoNetworkIsRefused) {
  for (const char* wanted : {"10.1.0.0/33", "10.1.0/16", "10.1.0.0/", "10.1.0.0/x", "eth0/8",
                             "fd00::/129", "10.1.0.0/-1", "10.1.0.0/8/8"})
    EXPECT_THAT(refusal(wanted), HasSubstr(std::string(wanted) + " is no network")) << wanted;
}

TEST(Interfaces, ThisHostHasSome) {
  for (const Interface& interface : list_interfaces()) {
    EXPECT_FALSE(interface.name.empty());
    EXPECT_EQ(SocketAddress::from(interface.address.to_system().get()), interface.address);
  }
}

TEST(SocketAddress, IsSpelledWithItsPort) {
  SocketAddress v4 = address("10.1.0.7");
  SocketAddress v6 = address("fd00::7");
  EXPECT_EQ(to_string(v4), "10.1.0.7");
  v4.port = v6.port = 4711;
  EXPECT_EQ(to_string(v4), "10.1.0.7:4711");
  EXPECT_EQ(to_string(v6), "[fd00::7]:4711");
  EXPECT_EQ(SocketAddress::from(v4.to_system().get()), v4);
  EXPECT_EQ(SocketAddress::from(v6.to_system().get()), v6);
}

TEST(SocketAddress, KnowsWhatOtherHostsCannotUse) {
  for (const char* text : {"127.0.0.1", "127.9.9.9", "::1"})
    EXPECT_TRUE(address(text).is_loopback()) << text;
  for (const char* text : {"128.0.0.1", "::2", "fe80::1"})
    EXPECT_FALSE(address(text).is_loopback()) << text;
  EXPECT_TRUE(address("fe80::1").is_link_local());
  EXPECT_TRUE(address("febf::1").is_link_local());
  EXPECT_FALSE(address("fec0::1").is_link_local());
  EXPECT_FALSE(address("254.128.0.1").is_link_local());
}

}  // namespace
}  // namespace kolo::internal::transport
