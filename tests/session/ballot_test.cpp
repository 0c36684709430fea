#include "session/ballot.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kolo/error.hpp"

namespace kolo::session {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

InvalidArgument refusal_of(const std::vector<Ballot>& ballots) {
  try {
    require_unanimity(collect_complaints(ballots));
  } catch (const InvalidArgument& error) {
    return error;
  }
  throw std::logic_error("nothing was refused");
}

TEST(Ballots, WithoutProblemsAreUnanimous) {
  for (std::size_t ranks = 1; ranks <= 4; ++ranks)
    EXPECT_NO_THROW(
        require_unanimity(collect_complaints(std::vector(ranks, Ballot::make("1.2", "")))));
}

TEST(Ballots, NameWhoHasAProblem) {
  const std::vector<Ballot> ballots{Ballot::make("1.2", ""), Ballot::make("1.2", "X=7"),
                                    Ballot::make("1.2", "Y=8"), Ballot::make("1.2", "X=7")};
  const InvalidArgument error = refusal_of(ballots);
  EXPECT_THAT(error.ranks(), ElementsAre(1, 2, 3));
  EXPECT_THAT(error.what(), HasSubstr("ranks 1, 3: X=7; rank 2: Y=8"));
}

TEST(Ballots, NameWhoRunsAnotherVersion) {
  const InvalidArgument error =
      refusal_of({Ballot::make("1.2", ""), Ballot::make("1.3", ""), Ballot::make("1.2", "")});
  EXPECT_THAT(error.ranks(), ElementsAre(1));
  EXPECT_THAT(error.what(), HasSubstr("rank 1: runs Kolo 1.3, rank 0 runs 1.2"));
}

TEST(Ballots, CutShortWhatHasNoRoom) {
  const InvalidArgument error = refusal_of({Ballot::make("1.2", std::string(1000, 'p'))});
  EXPECT_THAT(error.what(), HasSubstr(": " + std::string(479, 'p')));
}

TEST(Ballots, NeedNoZeroAtTheEnd) {
  Ballot full;
  std::ranges::fill(full.version, 'v');
  std::ranges::fill(full.problem, 'p');
  const InvalidArgument error = refusal_of({full, Ballot::make("1.2", "")});
  EXPECT_THAT(error.ranks(), ElementsAre(0, 1));
  EXPECT_THAT(error.what(), HasSubstr("rank 0: " + std::string(480, 'p') + "; rank 1"));
  EXPECT_THAT(error.what(), HasSubstr("rank 0 runs " + std::string(32, 'v')));
}

}  // namespace
}  // namespace kolo::session
