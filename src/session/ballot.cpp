#include "session/ballot.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/rank_set.hpp"
#include "kolo/error.hpp"

namespace kolo::session {
namespace {

template <std::size_t Size>
void copy(std::string_view text, std::array<char, Size>& into) {
  text.copy(into.data(), std::min(text.size(), Size - 1));
}

template <std::size_t Size>
std::string to_text(const std::array<char, Size>& text) {
  return {text.begin(), std::ranges::find(text, '\0')};
}

/// The ranks whose ballots have something to say, with what the first of them says.
struct Complaint {
  RankSet ranks;
  std::string text;
};

std::string said_by(const RankSet& ranks) {
  return (ranks.count() == 1 ? "rank " : "ranks ") + to_string(ranks) + ": ";
}

}  // namespace

Ballot Ballot::make(std::string_view version, std::string_view problem) {
  Ballot ballot;
  copy(version, ballot.version);
  copy(problem, ballot.problem);
  return ballot;
}

Complaints collect_complaints(std::span<const Ballot> ballots) {
  std::vector<Complaint> complaints;
  RankSet complaining;
  const auto complain = [&](int rank, const std::string& text) {
    complaining.insert(RankSet::of(rank));
    for (Complaint& complaint : complaints) {
      if (complaint.text != text) continue;
      complaint.ranks.insert(RankSet::of(rank));
      return;
    }
    complaints.push_back({RankSet::of(rank), text});
  };
  for (std::size_t place = 0; place < ballots.size(); ++place) {
    const Ballot& ballot = ballots[place];
    const int rank = static_cast<int>(place);
    if (ballot.version != ballots.front().version) {
      complain(rank, "runs Kolo " + to_text(ballot.version) + ", rank 0 runs " +
                         to_text(ballots.front().version));
    } else if (ballot.problem.front() != '\0') {
      complain(rank, to_text(ballot.problem));
    }
  }
  Complaints all{.ranks = complaining.to_vector()};
  for (std::size_t i = 0; i < complaints.size(); ++i)
    all.text += (i == 0 ? "" : "; ") + said_by(complaints[i].ranks) + complaints[i].text;
  return all;
}

void require_unanimity(const Complaints& complaints) {
  if (complaints.text.empty()) return;
  throw InvalidArgument("the session cannot start: " + complaints.text, "", complaints.ranks);
}

}  // namespace kolo::session
