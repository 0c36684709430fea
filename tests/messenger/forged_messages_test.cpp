// SPDX-License-Identifier: Apache-2.0
// Messages that were altered, repeated or forged on the way.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "data_world.hpp"
#include "messenger/message_seal.hpp"
#include "network.hpp"
#include "node/file_descriptor.hpp"
#include "transport/handshake.hpp"

namespace kolo::internal::messenger {
namespace {

using testing::HasSubstr;
using transport::Handshake;
using Bytes = Handshake::Bytes;

constexpr std::size_t header_bytes = 32;

/// Rank 0 of a session of two, and a process that plays rank 1. The parameter: the connection is
/// encrypted.
class ForgedMessages : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const transport::SocketAddress at = listener_->addresses().front();
    Handshake handshake(
        Handshake::Side::caller, secret_of(0),
        {.kind = transport::Parties::Kind::data, .caller = 1, .callee = 0, .at = at});
    const transport::SystemAddress address = at.to_system();
    ASSERT_EQ(::connect(one_.get(), address.get(), address.length), 0);
    send(handshake.begin());
    Bytes arrived;
    zero_ = listener_->connect({listener_->addresses(), {}}, [&] { answer(handshake, arrived); });
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!handshake.is_complete() && std::chrono::steady_clock::now() < until)
      answer(handshake, arrived);
    ASSERT_TRUE(handshake.is_complete());
    seal_ = MessageSeal(handshake.keys().sent, GetParam());
  }

  void send(const Bytes& bytes) const {
    ASSERT_EQ(::send(one_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  /// Answers the next message of the handshake once it has arrived.
  void answer(Handshake& handshake, Bytes& arrived) const {
    std::byte next{};
    while (!handshake.is_complete() && ::recv(one_.get(), &next, 1, MSG_DONTWAIT) == 1) {
      arrived.push_back(next);
      if (arrived.size() < handshake.awaited_bytes()) continue;
      if (const Bytes reply = handshake.answer(arrived).value(); !reply.empty()) send(reply);
      arrived.clear();
    }
  }

  /// A message with the tag 1 that says that it has `bytes` bytes.
  Bytes sealed(Bytes content, std::size_t bytes) {
    Bytes header(header_bytes);
    const std::int64_t tag = 1;
    std::memcpy(header.data() + 8, &tag, sizeof tag);
    std::memcpy(header.data() + 16, &bytes, sizeof bytes);
    const MessageSeal::Tag of_header = seal_.seal_header(header);
    seal_.advance();
    Bytes message(of_header.begin(), of_header.end());
    message.insert(message.end(), header.begin(), header.end());
    if (GetParam()) {
      const MessageSeal::Tag of_content = seal_.encrypt(Bytes(content), content.data());
      seal_.advance();
      content.insert(content.end(), of_content.begin(), of_content.end());
    }
    message.insert(message.end(), content.begin(), content.end());
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
    }
    return zero_->loss() == nullptr ? "" : zero_->loss()->message;
  }

  std::unique_ptr<DataListener> listener_ = listen_with_sockets(
      {.rank = 0, .size = 2, .secret = secret_of(0), .encrypts = GetParam()}, {loopback()});
  node::FileDescriptor one_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::unique_ptr<Messenger> zero_;
  MessageSeal seal_;
  static constexpr const char* altered = "was altered, lost or repeated on the way";
};

INSTANTIATE_TEST_SUITE_P(Encrypted, ForgedMessages, testing::Bool());

TEST_P(ForgedMessages, TheRightOnesArrive) {
  const Bytes sent = pattern(1, 1, 100);
  Bytes received(100);
  for (int i = 0; i < 3; ++i) {
    send(sealed(sent, 100));
    EXPECT_EQ(receive(received), "");
    EXPECT_EQ(received, sent);
  }
}

TEST_P(ForgedMessages, TheRightOnesMayArriveInParts) {
  const Bytes sent = pattern(1, 1, 100);
  for (const std::ptrdiff_t first : {1, 16, 47, 48, 49, 147}) {  // 48 bytes are the header
    const Bytes message = sealed(sent, 100);
    Bytes received(100);
    send(Bytes(message.begin(), message.begin() + first));
    zero_->progress();
    zero_->progress();
    send(Bytes(message.begin() + first, message.end()));
    EXPECT_EQ(receive(received), "");
    EXPECT_EQ(received, sent);
  }
}

TEST_P(ForgedMessages, ARankThatEndsInTheMiddleOfOneIsLost) {
  const Bytes message = sealed(pattern(1, 1, 100), 100);
  send(Bytes(message.begin(), message.end() - 1));
  one_ = {};
  Bytes received(100);
  EXPECT_THAT(receive(received), HasSubstr("the data connection to rank 1 was lost"));
}

TEST_P(ForgedMessages, ARepeatedOneIsRefused) {
  const Bytes message = sealed(pattern(1, 1, 100), 100);
  Bytes received(100);
  send(message);
  EXPECT_EQ(receive(received), "");
  send(message);
  EXPECT_THAT(receive(received), HasSubstr(altered));
}

TEST_P(ForgedMessages, AnAlteredTagIsRefused) {
  Bytes message = sealed(pattern(1, 1, 100), 100);
  message[sizeof(MessageSeal::Tag) + 8] ^= std::byte{1};  // by which messages are matched
  send(message);
  Bytes received(100);
  EXPECT_THAT(receive(received), HasSubstr(altered));
}

// Rank 0 does not wait for a message of another length.
TEST_P(ForgedMessages, AnAlteredLengthIsRefused) {
  Bytes message = sealed(pattern(1, 1, 100), 100);
  message[sizeof(MessageSeal::Tag) + 17] ^= std::byte{1};
  send(message);
  Bytes received(100);
  EXPECT_THAT(receive(received), HasSubstr(altered));
}

TEST_P(ForgedMessages, AnAlteredPayloadIsRefusedOnlyIfItIsEncrypted) {
  constexpr std::size_t many = 100'000;
  Bytes message = sealed(pattern(1, 1, many), many);
  message[sizeof(MessageSeal::Tag) + header_bytes + many / 2] ^= std::byte{1};
  send(message);
  Bytes received(many);
  const std::string loss = receive(received);
  if (GetParam()) {
    EXPECT_THAT(loss, HasSubstr(altered));
  } else {
    EXPECT_EQ(loss, "");
    Bytes expected = pattern(1, 1, many);
    expected[many / 2] ^= std::byte{1};
    EXPECT_TRUE(received == expected);
  }
}

}  // namespace
}  // namespace kolo::internal::messenger
