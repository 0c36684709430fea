// SPDX-License-Identifier: Apache-2.0
#include "ticket.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string_view>

#include "rendezvous/tcp_rendezvous.hpp"

namespace kolorun {
namespace {

// The header of a ticket: this mark, the length of the rest in decimal digits, padded with spaces
// on the left, and a line break.
constexpr std::string_view mark = "kolorun ";
constexpr std::size_t header_bytes = 17;
constexpr std::size_t max_ticket = 16 << 20;

std::string read_exactly(int from, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t have = 0; have < bytes;) {
    const ssize_t more = ::read(from, text.data() + have, bytes - have);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0)
      throw std::runtime_error(
          "--agent is for internal use: kolorun passes instructions to it on standard input");
    have += static_cast<std::size_t>(more);
  }
  return text;
}

}  // namespace

std::string write_ticket(const Ticket& ticket) {
  std::string text = rendezvous::to_hex(ticket.secret) + '\0';
  for (const std::string& argument : ticket.arguments) text += argument + '\0';
  return fmt::format("{}{:8}\n", mark, text.size()) + text;
}

Ticket read_ticket(int from) {
  const std::string header = read_exactly(from, header_bytes);
  const std::size_t bytes = header.starts_with(mark) && header.back() == '\n'
                                ? std::strtoul(header.c_str() + mark.size(), nullptr, 10)
                                : 0;
  if (bytes == 0 || bytes > max_ticket)
    throw std::runtime_error("what came by standard input is not from a kolorun");
  const std::string text = read_exactly(from, bytes);
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  Ticket ticket{.secret = rendezvous::secret_from_hex(parts.front())};
  ticket.arguments.assign(parts.begin() + 1, parts.end());
  return ticket;
}

}  // namespace kolorun
