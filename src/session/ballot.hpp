// What a rank says before a session starts, and what the ranks make of it together.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::session {

/// The same bytes in every version, so that versions can tell each other apart. Texts end with a
/// zero or with their room.
struct Ballot {
  std::array<char, 32> version{};
  std::array<char, 480> problem{};  // empty: none

  /// Cuts short what has no room.
  [[nodiscard]] static Ballot make(std::string_view version, std::string_view problem);
};

/// What ranks have to say, the same on all. Empty if nobody has anything.
struct Complaints {
  std::vector<int> ranks{};
  std::string text{};  // names the ranks
};

/// `ballots` by rank, at least one: all that have a problem or run another version than rank 0.
[[nodiscard]] Complaints collect_complaints(std::span<const Ballot> ballots);

/// Throws InvalidArgument if there are any.
void require_unanimity(const Complaints& complaints);

}  // namespace kolo::session
