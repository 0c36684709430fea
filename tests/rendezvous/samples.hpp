// SPDX-License-Identifier: Apache-2.0
// One message of each kind, with a value in every field.
#pragma once

#include <vector>

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

[[nodiscard]] inline std::vector<Message> sample_messages() {
  const Member member{
      .process = 4711, .host = "node1", .machine = "boot 1 2", .pid = 12, .commit = 8};
  return {
      Hello{Role::agent, 5, "node1", "boot 1 2", 12, 3, 4, "0.1.0", "-np 4: ./train", true, true},
      Join{2, 9, true},
      Contribution{2, 1, Bytes(9, std::byte{1})},
      Leave{2},
      Failed{"an exception"},
      FailureReport{2, {0, 3}, "it does nothing", true},
      Exited{4711, 137, "killed for memory", "a line\nanother", true},
      Removal{"the host is to go"},
      Keepalive{3},
      Welcome{std::chrono::seconds(10), 4711, true},
      Refusal{"the secret is wrong", std::chrono::seconds(3), true},
      Roster{3, {member, member}},
      Interruption{3, {1}, "rank 1 is lost"},
      Result{3, 2, {{Bytes(4, std::byte{2})}, {}}},
      Announcement{3, "2 new processes wait"},
      Start{{{4711, 1, 4, 1, 2, 3}, {4712, -1, 4, 0, 2, 0}}},
      Kill{4711, "it is lost"},
      End{1, "too few ranks", true},
      Signal{15},
      Begun{2},
      Completed{2},
      HandshakeStep{Bytes(transport::Handshake::hello_bytes, std::byte{7})},
      SessionFailed{"an exception ended its scope"},
      RanksMissed{2, {1, 3}, "allreduce \"x\""},
      Vote{{7, 8}, 7, 8, {{4711, 1, 0}, {4712, -1, -1}}, std::chrono::seconds(2), true},
      Standing{3, 2, {4711, 4712}, true},
      Electorate{{7, 8}, 7, 8},
      Succession{"the first server is lost"}};
}

}  // namespace kolo::internal::rendezvous
