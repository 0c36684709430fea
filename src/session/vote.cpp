#include "session/vote.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/rank_set.hpp"
#include "kolo/error.hpp"
#include "kolo/version.hpp"
#include "node/mpi_error.hpp"

namespace kolo::session {
namespace {

using Text = std::array<char, 480>;

/// The same bytes in every version, so that versions can tell each other apart.
struct Ballot {
  std::array<char, 32> version{};
  Text problem{};
};

template <std::size_t Size>
void copy(std::string_view text, std::array<char, Size>& into) {
  text.copy(into.data(), std::min(text.size(), Size - 1));
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

Complaints gather_complaints(MPI_Comm world, const std::string& problem) {
  int size = 1;
  MPI_Comm_size(world, &size);
  Ballot mine;
  copy(version, mine.version);
  copy(problem, mine.problem);
  std::vector<Ballot> ballots(static_cast<std::size_t>(size));
  node::check_mpi(
      MPI_Allgather(&mine, sizeof mine, MPI_BYTE, ballots.data(), sizeof mine, MPI_BYTE, world),
      "MPI_Allgather");

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
  for (int rank = 0; rank < size; ++rank) {
    const Ballot& ballot = ballots[static_cast<std::size_t>(rank)];
    if (ballot.version != ballots.front().version) {
      complain(rank, std::string("runs Kolo ") + ballot.version.data() + ", rank 0 runs " +
                         ballots.front().version.data());
    } else if (ballot.problem.front() != '\0') {
      complain(rank, ballot.problem.data());
    }
  }
  Complaints all{.ranks = complaining.to_vector()};
  for (std::size_t i = 0; i < complaints.size(); ++i)
    all.text += (i == 0 ? "" : "; ") + said_by(complaints[i].ranks) + complaints[i].text;
  return all;
}

bool on_all_ranks(MPI_Comm comm, bool mine) {
  int all = mine ? 1 : 0;
  node::check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  return all != 0;
}

void vote(MPI_Comm world, const std::string& problem) {
  const Complaints complaints = gather_complaints(world, problem);
  if (complaints.text.empty()) return;
  throw InvalidArgument("the session cannot start: " + complaints.text, "", complaints.ranks);
}

}  // namespace kolo::session
