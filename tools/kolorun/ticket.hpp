// SPDX-License-Identifier: Apache-2.0
// What a kolorun that a launcher starts on a host reads from its standard input: nothing of it is
// seen in lists of processes, and no shell has to be told of quotes.
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
/// Reads not a byte more: what follows is for rank 0. Throws std::runtime_error.
[[nodiscard]] Ticket read_ticket(int from);

}  // namespace kolorun
