// SPDX-License-Identifier: Apache-2.0
// Tags and encryption of messages.
#include "messenger/message_seal.hpp"

#include <chrono>
#include <string>
#include <vector>

#include "data_world.hpp"
#include "network.hpp"

namespace kolo::internal::messenger {
namespace {

using Bytes = transport::Handshake::Bytes;

transport::FrameKey make_key(int number) {
  transport::FrameKey key{};
  key.fill(static_cast<std::byte>(number));
  return key;
}

TEST(MessageSeal, OnlyTheNextHeaderIsAccepted) {
  for (const bool encrypts : {false, true}) {
    SCOPED_TRACE(encrypts);
    const MessageSeal sender(make_key(1), encrypts);
    const MessageSeal receiver(make_key(1), encrypts);
    const Bytes plain = pattern(1, 2, 32);
    Bytes sealed = plain;
    const MessageSeal::Tag tag = sender.seal_header(sealed);
    EXPECT_EQ(sealed == plain, !encrypts);
    const auto opens = [&](const MessageSeal& seal, Bytes header, const MessageSeal::Tag& its_tag) {
      return seal.open_header(header, its_tag) && header == plain;
    };
    EXPECT_TRUE(opens(receiver, sealed, tag));
    EXPECT_FALSE(opens(MessageSeal(make_key(2), encrypts), sealed, tag));
    EXPECT_FALSE(opens(receiver, sealed, {}));
    Bytes altered = sealed;
    altered.back() ^= std::byte{1};
    EXPECT_FALSE(opens(receiver, altered, tag));
    MessageSeal later = receiver;
    later.advance();
    EXPECT_FALSE(opens(later, sealed, tag));
  }
}

TEST(MessageSeal, APayloadIsAcceptedUnaltered) {
  MessageSeal sender(make_key(1), true);
  MessageSeal receiver(make_key(1), true);
  for (const std::size_t bytes : {1UL, 100UL, 1UL << 20}) {
    const Bytes plain = pattern(1, 2, bytes);
    Bytes sealed(bytes);
    const MessageSeal::Tag tag = sender.encrypt(plain, sealed.data());
    sender.advance();
    Bytes altered = sealed;
    altered[bytes / 2] ^= std::byte{16};
    EXPECT_FALSE(receiver.decrypt(altered, tag));
    EXPECT_NE(sealed, plain);
    EXPECT_TRUE(receiver.decrypt(sealed, tag));
    receiver.advance();
    EXPECT_EQ(sealed, plain);
  }
}

TEST(MessageSeal, EncryptedRanksExchangeMessagesOfAllSizes) {
  DataWorld world(2, std::chrono::minutes(1), {loopback()}, true);
  for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
  Transfers zero(world.rank(0));
  Transfers one(world.rank(1));
  std::vector<Bytes> sent;
  for (const std::size_t bytes : {1UL, 4096UL, 4097UL, 1UL << 20, 40UL << 20})
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

}  // namespace
}  // namespace kolo::internal::messenger
