// SPDX-License-Identifier: Apache-2.0
// Messages over one TCP connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"
#include "node/not_inherited.hpp"
#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// A message as it travels: its length and a mark, then its bytes. Several connections may share
/// one.
using Frame = std::shared_ptr<const Bytes>;
[[nodiscard]] Frame make_frame(const Message& message);

/// Never blocks. What the network does not take is kept, up to a bound. Not thread-safe.
class Connection {
 public:
  /// `socket` is connected and does not block. A forked child does not have it.
  explicit Connection(node::FileDescriptor socket, std::size_t max_bytes = max_message);

  [[nodiscard]] int descriptor() const { return socket_.get(); }
  /// Of messages that are read: a longer one ends the connection.
  void set_max_bytes(std::size_t bytes) { max_bytes_ = bytes; }

  void send(const Message& message) { send(make_frame(message)); }
  void send(Frame frame);
  /// What the network takes. A failure shows when it is read.
  void write();
  /// Reads what has come, and passes on whole messages, until `take` returns false.
  void read(const std::function<bool(const Message&)>& take);

  [[nodiscard]] bool flushed() const { return outbox_.empty(); }
  /// Nothing more comes.
  [[nodiscard]] bool closed() const { return closed_; }
  /// Why: an error, a message that is none, or that the other side has closed it.
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  void fill();
  [[nodiscard]] bool hand_over(const std::function<bool(const Message&)>& take);
  void close(const std::string& reason);

  node::FileDescriptor socket_;
  node::NotInherited not_inherited_;
  std::size_t max_bytes_;
  std::deque<Frame> outbox_{};
  std::size_t written_ = 0;  // of the first
  std::size_t unsent_ = 0;
  Bytes inbox_{};
  std::size_t taken_ = 0;  // of the inbox
  bool broken_ = false;    // nothing can be sent
  bool closed_ = false;
  std::string reason_{};
};

}  // namespace kolo::internal::rendezvous
