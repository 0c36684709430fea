#include "session/breakdown.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace kolo::session {
namespace {

// Begins as no FlatBuffer of that size can: with an offset far behind its end.
constexpr std::array<char, 8> mark{'K', 'o', 'l', 'o', 'l', 'o', 's', 's'};

struct Header {
  std::array<char, 8> mark;
  std::uint64_t session;
  std::uint64_t ranks;
  std::uint64_t kind;
};

}  // namespace

Breakdown Breakdown::as_seen_from_others(int rank) const {
  if (kind != Kind::backend) return *this;
  return {Kind::peer_left, fmt::format("rank {} cannot go on: {}", rank, reason), {rank}};
}

transport::Message encode(std::uint64_t session, const Breakdown& breakdown) {
  const Header header{mark, session, breakdown.ranks.size(),
                      static_cast<std::uint64_t>(breakdown.kind)};
  const std::size_t rank_bytes = breakdown.ranks.size() * sizeof(int);
  transport::Message message(sizeof header + rank_bytes + breakdown.reason.size());
  std::byte* at = message.data();
  const auto put = [&](const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(at, from, bytes);
    at += bytes;
  };
  put(&header, sizeof header);
  put(breakdown.ranks.data(), rank_bytes);
  put(breakdown.reason.data(), breakdown.reason.size());
  return message;
}

std::optional<Breakdown> decode_breakdown(std::uint64_t session,
                                          std::span<const std::byte> message) {
  Header header{};
  if (message.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, message.data(), sizeof header);
  const std::size_t rest = message.size() - sizeof header;
  if (header.mark != mark || header.session != session || header.ranks > rest / sizeof(int) ||
      header.kind >= static_cast<std::uint64_t>(Breakdown::Kind::backend))
    return std::nullopt;
  Breakdown breakdown{static_cast<Breakdown::Kind>(header.kind), {}, {}};
  breakdown.ranks.resize(header.ranks);
  const std::byte* at = message.data() + sizeof header;
  const std::size_t rank_bytes = breakdown.ranks.size() * sizeof(int);
  if (rank_bytes > 0) std::memcpy(breakdown.ranks.data(), at, rank_bytes);
  breakdown.reason.assign(reinterpret_cast<const char*>(at + rank_bytes), rest - rank_bytes);
  return breakdown;
}

}  // namespace kolo::session
