// SPDX-License-Identifier: Apache-2.0
#include "transport/framed_stream.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>

#include "socket_fixture.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::transport {
namespace {

constexpr FramedStream::Bounds bounds{.max_bytes = 64, .max_unsent = 1 << 20};

SharedBytes text(const std::string& content) {
  const auto bytes = std::as_bytes(std::span(content));
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

std::pair<node::FileDescriptor, node::FileDescriptor> make_pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {node::FileDescriptor(ends[0]), node::FileDescriptor(ends[1])};
}

/// The frames of "a", which has no tag, and of "b" and "c", which have tags.
std::array<std::string, 3> record_stream() {
  auto [near, far] = make_pair();
  FramedStream stream(std::move(near), bounds);
  std::array<std::string, 3> frames;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (i == 1) stream.authenticate(keys_of(1));
    stream.send(text(std::string(1, static_cast<char>('a' + i))));
    std::array<char, 64> buffer{};
    const ssize_t bytes = ::recv(far.get(), buffer.data(), buffer.size(), 0);
    frames[i].assign(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  }
  return frames;
}

/// The texts that arrive at a side that trusts the other one after "a", and why it closes.
std::pair<std::string, std::string> read_stream(const std::vector<std::string>& frames,
                                                const FrameKeys& keys = reversed(keys_of(1)),
                                                bool cut = true) {
  auto [near, far] = make_pair();
  for (const std::string& frame : frames)
    EXPECT_EQ(::send(far.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(frame.size()));
  if (cut) far = {};
  FramedStream stream(std::move(near), bounds);
  std::string heard;
  const auto read = [&] {
    stream.read([&](std::span<const std::byte> message) {
      heard.append(reinterpret_cast<const char*>(message.data()), message.size());
      if (heard == "a") stream.authenticate(keys);
      return true;
    });
  };
  while (!stream.closed()) read();
  read();  // what arrived behind a wrong frame stays unheard
  return {heard, stream.reason()};
}

TEST(FramedStream, ClosesAtAFrameThatWasTouchedOnTheWay) {
  const auto [a, b, c] = record_stream();
  const std::string touched = "one of its messages was altered, lost or repeated on the way";
  EXPECT_EQ(read_stream({a, b, c}),
            std::pair(std::string("abc"), std::string("its connection is closed")));
  // The length, the tags and the message. The stream does not wait for a longer message.
  for (std::size_t at = 4; at < b.size(); ++at) {
    std::string altered = b;
    altered[at] = static_cast<char>(altered[at] ^ 1);
    EXPECT_EQ(read_stream({a, altered, c}, reversed(keys_of(1)), /*cut=*/false),
              std::pair(std::string("a"), touched))
        << at;
  }
  EXPECT_EQ(read_stream({a, c}), std::pair(std::string("a"), touched)) << "one is dropped";
  EXPECT_EQ(read_stream({a, b, b}), std::pair(std::string("ab"), touched)) << "one is repeated";
  EXPECT_EQ(read_stream({a, c, b}), std::pair(std::string("a"), touched)) << "two are exchanged";
  EXPECT_EQ(read_stream({a, b, c}, keys_of(1)), std::pair(std::string("a"), touched))
      << "sent back";
  // A frame without tags, and room for them behind it.
  EXPECT_EQ(read_stream({a, a, std::string(24, '\0')}), std::pair(std::string("a"), touched));
}

/// Whether the other side has ended a stream in order after a message; `resets`: by a reset.
bool has_ended(bool resets, const std::string& sent) {
  const node::FileDescriptor listener = std::move(listen_at(Endpoint{"127.0.0.1", 0}).front());
  node::FileDescriptor far = connect_to({"127.0.0.1", address_of(listener.get()).port}, 20s);
  node::FileDescriptor near;
  while (!near.valid()) near = accept_connection(listener.get());
  EXPECT_EQ(::send(far.get(), sent.data(), sent.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(sent.size()));
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  if (resets) ::setsockopt(far.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  far = {};
  FramedStream stream(std::move(near), bounds);
  while (!stream.closed()) stream.read([](std::span<const std::byte>) { return true; });
  return stream.has_ended();
}

// A firewall that refuses connections resets those that there are, too.
TEST(FramedStream, TellsAnEndFromAReset) {
  const std::string frame = record_stream().front();
  EXPECT_TRUE(has_ended(/*resets=*/false, frame));
  EXPECT_FALSE(has_ended(/*resets=*/true, frame));
  EXPECT_FALSE(has_ended(/*resets=*/false, frame.substr(0, 5)));
}

}  // namespace
}  // namespace kolo::internal::transport
