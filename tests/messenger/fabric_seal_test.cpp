// SPDX-License-Identifier: Apache-2.0
// Messages of data connections that were altered, repeated or forged on the way.
#include "messenger/fabric_seal.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fabric_stranger.hpp"
#include "network.hpp"

namespace kolo::internal::messenger {
namespace {

using testing::HasSubstr;
using Bytes = transport::Handshake::Bytes;

constexpr std::size_t header_bytes = 32;

transport::FrameKey make_key(int number) {
  transport::FrameKey key{};
  key.fill(static_cast<std::byte>(number));
  return key;
}

TEST(FabricSeal, OnlyTheNextMessageIsAccepted) {
  for (const bool encrypts : {false, true}) {
    SCOPED_TRACE(encrypts);
    const FabricSeal sender(make_key(1), encrypts);
    const FabricSeal receiver(make_key(1), encrypts);
    const Bytes plain = pattern(1, 2, 100);
    Bytes sealed = plain;
    const FabricSeal::Tag tag = sender.seal_header(sealed, header_bytes);
    EXPECT_EQ(sealed == plain, !encrypts);
    const auto opens = [&](const FabricSeal& seal, Bytes message, const FabricSeal::Tag& its_tag) {
      return seal.open_header(message, header_bytes, its_tag) && message == plain;
    };
    EXPECT_TRUE(opens(receiver, sealed, tag));
    EXPECT_FALSE(opens(FabricSeal(make_key(2), encrypts), sealed, tag));
    EXPECT_FALSE(opens(receiver, sealed, {}));
    Bytes altered = sealed;
    altered[header_bytes - 1] ^= std::byte{1};
    EXPECT_FALSE(opens(receiver, altered, tag));
    altered = sealed;
    altered.back() ^= std::byte{1};
    Bytes opened = altered;
    EXPECT_EQ(receiver.open_header(opened, header_bytes, tag), !encrypts);
    FabricSeal later = receiver;
    later.advance();
    EXPECT_FALSE(opens(later, sealed, tag));
  }
}

TEST(FabricSeal, APayloadIsAcceptedUnaltered) {
  FabricSeal sender(make_key(1), true);
  FabricSeal receiver(make_key(1), true);
  for (const std::size_t bytes : {0UL, 1UL, 100UL, 1UL << 20}) {
    const Bytes plain = pattern(1, 2, bytes);
    Bytes sealed(bytes);
    const FabricSeal::Tag tag = sender.encrypt(plain, sealed.data());
    sender.advance();
    if (bytes > 0) {
      Bytes altered = sealed;
      altered[bytes / 2] ^= std::byte{16};
      EXPECT_FALSE(receiver.decrypt(altered, tag));
      EXPECT_NE(sealed, plain);
    }
    EXPECT_TRUE(receiver.decrypt(sealed, tag));
    receiver.advance();
    EXPECT_EQ(sealed, plain);
  }
}

TEST(FabricSeal, EncryptedRanksExchangeMessagesOfAllSizes) {
  FabricWorld world(2, std::chrono::minutes(1), {loopback()}, true);
  for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
  Transfers zero(world.rank(0));
  Transfers one(world.rank(1));
  std::vector<Bytes> sent;
  for (const std::size_t bytes : {0UL, 1UL, 4096UL, 4097UL, 1UL << 20, 40UL << 20})
    sent.push_back(pattern(1, static_cast<int>(sent.size()), bytes));
  std::vector<Bytes> there;
  std::vector<Bytes> here;
  for (const Bytes& message : sent) {
    there.emplace_back(message.size());
    here.emplace_back(message.size());
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    zero.receive(1, i, here[i]);
    one.receive(0, i, there[i]);
    zero.send(1, i, sent[i]);
    one.send(0, i, sent[i]);
  }
  while (zero.pending() + one.pending() > 0) {
    zero.step();
    one.step();
  }
  EXPECT_TRUE(here == sent);
  EXPECT_TRUE(there == sent);
}

/// Rank 0 of a session of two, and a process that plays rank 1. The parameter: the connection is
/// encrypted.
class ForgedMessages : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    transport::Handshake handshake(transport::Handshake::Side::caller, secret_of(0),
                                   {.kind = transport::Parties::Kind::data,
                                    .caller = 1,
                                    .callee = 0,
                                    .at = listener_->addresses().front()});
    one_.call(listener_->addresses().front(), with_pass(handshake.begin()));
    zero_ = listener_->connect({listener_->addresses(), {}}, [&] {
      one_.step();
      if (!one_.welcome.empty() && !handshake.is_trusted()) {
        Bytes welcome = one_.welcome;
        welcome.resize(transport::Handshake::welcome_bytes);
        one_.send(handshake.answer(welcome).value());
      }
    });
    seal_ = FabricSeal(handshake.keys().sent, GetParam());
  }

  /// The header of a message of `bytes` bytes with the tag 1, with its tag, and the content.
  Bytes sealed_header(const Bytes& content, std::int64_t bytes) {
    Bytes message(header_bytes);
    const std::int64_t tag = 1;
    std::memcpy(message.data() + 8, &tag, sizeof tag);
    std::memcpy(message.data() + 16, &bytes, sizeof bytes);
    message.insert(message.end(), content.begin(), content.end());
    const FabricSeal::Tag its_tag = seal_.seal_header(message, header_bytes);
    seal_.advance();
    message.insert(message.begin(), its_tag.begin(), its_tag.end());
    return message;
  }

  /// Rank 0 receives a message, or loses rank 1.
  std::string receive(Bytes& into) {
    Transfers here(*zero_);
    here.receive(1, 1, into);
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (here.pending() > 0 && zero_->loss() == nullptr &&
           std::chrono::steady_clock::now() < until) {
      here.step();
      static_cast<void>(zero_->may_sleep());
      one_.step();
    }
    return zero_->loss() == nullptr ? "" : zero_->loss()->message;
  }

  std::unique_ptr<FabricListener> listener_ = listen_on_fabric(
      {.rank = 0, .size = 2, .secret = secret_of(0), .encrypts = GetParam()}, {loopback()});
  Stranger one_;
  std::unique_ptr<Messenger> zero_;
  FabricSeal seal_;
  static constexpr const char* altered = "was altered, lost or repeated on the way";
};

INSTANTIATE_TEST_SUITE_P(Encrypted, ForgedMessages, testing::Bool());

TEST_P(ForgedMessages, TheRightOnesArrive) {
  const Bytes sent = pattern(1, 1, 100);
  Bytes received(100);
  for (int i = 0; i < 3; ++i) {
    one_.send(sealed_header(sent, 100));
    EXPECT_EQ(receive(received), "");
    EXPECT_EQ(received, sent);
  }
}

TEST_P(ForgedMessages, ARepeatedOneIsRefused) {
  const Bytes message = sealed_header(pattern(1, 1, 100), 100);
  Bytes received(100);
  one_.send(message);
  EXPECT_EQ(receive(received), "");
  one_.send(message);
  EXPECT_THAT(receive(received), HasSubstr(altered));
}

TEST_P(ForgedMessages, AnAlteredHeaderIsRefused) {
  Bytes message = sealed_header(pattern(1, 1, 100), 100);
  message[sizeof(FabricSeal::Tag) + 8] ^= std::byte{1};  // the tag by which messages are matched
  one_.send(message);
  Bytes received(100);
  EXPECT_THAT(receive(received), HasSubstr(altered));
}

TEST_P(ForgedMessages, AnAlteredPayloadIsRefusedOnlyIfItIsEncrypted) {
  constexpr std::size_t many = 100'000;
  Bytes payload = pattern(1, 1, many);
  one_.send(sealed_header({}, many));
  if (GetParam()) {
    const FabricSeal::Tag tag = seal_.encrypt(Bytes(payload), payload.data());
    payload.insert(payload.end(), tag.begin(), tag.end());
  }
  payload[many / 2] ^= std::byte{1};
  one_.send(payload);
  Bytes received(many);
  const std::string loss = receive(received);
  if (GetParam()) {
    EXPECT_THAT(loss, HasSubstr(altered));
  } else {
    EXPECT_EQ(loss, "");
    EXPECT_EQ(received, payload);
  }
}

}  // namespace
}  // namespace kolo::internal::messenger
