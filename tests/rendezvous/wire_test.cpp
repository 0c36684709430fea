// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "rendezvous/message.hpp"
#include "samples.hpp"

namespace kolo::internal::rendezvous {
namespace {

TEST(RendezvousWire, EveryMessageComesBackTheSame) {
  const std::vector<Message> messages = sample_messages();
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    EXPECT_EQ(messages[i].index(), i);
    EXPECT_EQ(decode(encode(messages[i])), messages[i]) << "kind " << i;
  }
}

TEST(RendezvousWire, TruncatedMessagesAreRefused) {
  for (const Message& message : sample_messages()) {
    const Bytes whole = encode(message);
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
      try {
        // FlatBuffers may leave bytes at the end unused.
        EXPECT_EQ(decode(std::span(whole).first(bytes)), message);
      } catch (const ProtocolError&) {
      }
    }
  }
}

template <typename Body>
void expect_refused(Body body, const std::string& why) {
  try {
    static_cast<void>(decode(encode(body)));
    ADD_FAILURE() << "accepted; expected: " << why;
  } catch (const ProtocolError& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
}

TEST(RendezvousWire, ValuesThatNobodyMeansAreRefused) {
  expect_refused(HandshakeStep{}, "another handshake");
  expect_refused(HandshakeStep{Bytes(transport::Handshake::max_bytes + 1)}, "another handshake");
  expect_refused(Hello{.host = std::string(max_name + 1, 'x')}, "a name");
  expect_refused(Hello{.role = static_cast<Role>(7)}, "a role");
  expect_refused(Hello{.slots = -1}, "slots");
  expect_refused(Hello{.wanted_rank = max_ranks}, "a rank");
  expect_refused(Contribution{.payload = Bytes(max_payload + 1)}, "a payload");
  expect_refused(FailureReport{.ranks = {-1}}, "a rank");
  expect_refused(Exited{.status = 256}, "a status");
  expect_refused(End{.status = -1}, "a status");
  expect_refused(Roster{.generation = 1}, "of nobody");
  expect_refused(Roster{.generation = 1, .members = {Member{}}}, "no process");
  expect_refused(Start{{Launch{.process = 0}}}, "without a number");
}

TEST(RendezvousWire, LongReasonsAreCutOff) {
  const Message back = decode(encode(Refusal{std::string(2 * max_text, 'x')}));
  EXPECT_EQ(std::get<Refusal>(back).reason.size(), max_text);
}

}  // namespace
}  // namespace kolo::internal::rendezvous
