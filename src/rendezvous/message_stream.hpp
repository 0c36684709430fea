// SPDX-License-Identifier: Apache-2.0
// Sends and receives messages of the rendezvous over one TCP connection.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "rendezvous/message.hpp"
#include "transport/framed_stream.hpp"

namespace kolo::internal::rendezvous {

/// A framed stream that encodes the messages it sends and decodes the messages it receives.
class MessageStream : public transport::FramedStream {
 public:
  /// `socket` is connected and non-blocking.
  explicit MessageStream(node::FileDescriptor socket, std::size_t max_bytes = max_message)
      : FramedStream(std::move(socket),
                     {.max_bytes = max_bytes, .max_unsent = std::size_t{4} * max_message}) {}

  using FramedStream::send;
  void send(const Message& message) { send(std::make_shared<const Bytes>(encode(message))); }

  /// Passes messages to `take` until it returns false. An invalid message closes the stream.
  void read(const std::function<bool(const Message&)>& take) {
    FramedStream::read([&](std::span<const std::byte> bytes) {
      try {
        return take(decode(bytes));
      } catch (const ProtocolError& error) {
        close(std::string("it sent ") + error.what());
        return false;
      }
    });
  }
};

}  // namespace kolo::internal::rendezvous
