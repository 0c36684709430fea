// SPDX-License-Identifier: Apache-2.0
#include "transport/sha256.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kolo::internal {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string to_hex(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

// The examples of FIPS 180-2, and an empty message.
TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(sha256(bytes_of(std::string(1'000'000, 'a')))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// RFC 4231, cases 1, 2, 3, 6 and 7.
TEST(Sha256, AuthenticatesAsInTheRfc) {
  const auto hmac = [](const std::string& key, const std::string& text) {
    return to_hex(hmac_sha256(bytes_of(key), {bytes_of(text)}));
  };
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  const std::string longer(131, '\xaa');
  EXPECT_EQ(hmac(longer, "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hmac(longer,
                 "This is a test using a larger than block-size key and a larger than block-size "
                 "data. The key needs to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Sha256, TakesPartsAsOneText) {
  EXPECT_EQ(hmac_sha256(bytes_of("key"), {bytes_of("one"), bytes_of(""), bytes_of("two")}),
            hmac_sha256(bytes_of("key"), {bytes_of("onetwo")}));
}

// Lengths at which the padding takes another block.
TEST(Sha256, DiffersForEachLength) {
  std::vector<Digest> digests;
  for (std::size_t length = 0; length <= 130; ++length) {
    digests.push_back(sha256(bytes_of(std::string(length, '\0'))));
    for (std::size_t other = 0; other < length; ++other)
      EXPECT_FALSE(is_same_digest(digests[other], digests[length])) << other << ' ' << length;
  }
  EXPECT_TRUE(is_same_digest(digests[64], sha256(bytes_of(std::string(64, '\0')))));
}

}  // namespace
}  // namespace kolo::internal
