// SPDX-License-Identifier: Apache-2.0
// A rendezvous server with two hosts, whose clock and messages tests provide.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/server/server.hpp"
#include "shake_hands.hpp"

namespace kolo::internal::rendezvous {

inline ServerOptions options_of(bool elastic) {
  ServerOptions options{.version = "1", .np = 2, .elastic = elastic};
  options.min_np = 1;
  options.max_np = 2;
  options.min_cooldown = std::chrono::seconds(1);
  return options;
}

/// A server with agents "a" and "b" of one slot each, whose processes are 1 and 2.
class ServerTest : public testing::Test {
 protected:
  void begin(bool elastic, int reset_limit = -1) {
    ServerOptions options = options_of(elastic);
    options.reset_limit = reset_limit;
    server_.emplace(options, [] { return std::uint64_t{4}; });
    add_agent(1, "a", 11);
    add_agent(2, "b", 12);
  }

  void add_agent(Link link, const std::string& host, ProcessId number, int slots = 1) {
    server_->on_open(link, host, now_);
    shake_hands(*server_, link,
                Hello{.role = Role::agent,
                      .process = number,
                      .host = host,
                      .wanted_rank = static_cast<std::int32_t>(link),
                      .slots = slots,
                      .version = "1"},
                now_);
  }

  void add_process(Link link, ProcessId process) {
    server_->on_open(link, "here", now_);
    shake_hands(*server_, link, Hello{.process = process, .version = "1"}, now_);
    server_->on_message(link, Join{}, now_);
  }

  /// The messages of a kind that went out, as the connections that they went to.
  template <typename Kind>
  std::vector<Link> receivers_of(const std::vector<Action>& actions) {
    std::vector<Link> links;
    for (const Action& action : actions)
      if (const auto* send = std::get_if<Send>(&action);
          send != nullptr && std::holds_alternative<Kind>(*send->message))
        links.push_back(send->link);
    return links;
  }

  std::optional<Server> server_;
  Time now_{};
};

inline const Finish* find_finish(const std::vector<Action>& actions) {
  for (const Action& action : actions)
    if (const auto* finish = std::get_if<Finish>(&action)) return finish;
  return nullptr;
}

/// Its status and reason; none while it goes on.
inline std::string end_of(Server& server) {
  const std::vector<Action> actions = server.take();
  const Finish* const finish = find_finish(actions);
  return finish == nullptr ? "" : fmt::format("{}: {}", finish->status, finish->reason);
}

}  // namespace kolo::internal::rendezvous
