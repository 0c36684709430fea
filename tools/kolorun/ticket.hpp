// SPDX-License-Identifier: Apache-2.0
// The ticket that a launcher sends to the standard input of a kolorun on another host. There, no
// list of processes shows it, and it needs no quoting for a shell.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/message.hpp"

namespace kolorun {

namespace rendezvous = kolo::internal::rendezvous;
namespace transport = kolo::internal::transport;

struct Ticket {
  rendezvous::Secret secret{};
  std::vector<std::string> arguments{};  // a command line, without the name of the program
};

[[nodiscard]] std::string write_ticket(const Ticket& ticket);
/// Reads exactly the ticket: the bytes after it are for rank 0. Throws std::runtime_error.
[[nodiscard]] Ticket read_ticket(int from);

}  // namespace kolorun
