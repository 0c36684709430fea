// SPDX-License-Identifier: Apache-2.0
// The actions that the rendezvous server asks its caller to carry out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// The number of a connection. Numbers are never reused.
using Link = std::uint64_t;

struct Send {
  Link link;
  std::shared_ptr<const Message> message;  // several sends may share one
};
/// Close the connection after all earlier sends have left. The caller no longer reports its events.
struct Close {
  Link link;
};
/// Write a line to the log.
struct Note {
  LogLevel level;
  std::string text;
};
/// The job is over. Agents and processes may remain connected until they have ended.
struct Finish {
  int status;
  std::string reason;
};
using Action = std::variant<Send, Close, Note, Finish>;

/// Actions in the order in which the caller must carry them out.
class Actions {
 public:
  void send(Link link, Message message) {
    send(link, std::make_shared<const Message>(std::move(message)));
  }
  void send(Link link, std::shared_ptr<const Message> message) {
    actions_.emplace_back(Send{link, std::move(message)});
  }
  void close(Link link) { actions_.emplace_back(Close{link}); }
  void note(LogLevel level, std::string text) {
    actions_.emplace_back(Note{level, std::move(text)});
  }
  void finish(Finish finish) { actions_.emplace_back(std::move(finish)); }

  [[nodiscard]] std::vector<Action> take() { return std::exchange(actions_, {}); }

 private:
  std::vector<Action> actions_{};
};

}  // namespace kolo::internal::rendezvous
