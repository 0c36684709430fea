// SPDX-License-Identifier: Apache-2.0
// The judge detects the violation of each promise.
#include "judge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo::internal::simulation {
namespace {

using negotiation::Execute;
using negotiation::Fail;

constexpr Time now = std::chrono::seconds(1);

class JudgeTest : public testing::Test {
 protected:
  JudgeTest() {
    program_.settings.node_of = {0, 0, 0};
    program_.scripts.resize(3);
    for (const std::int64_t length : {1, 2}) {
      Operation operation{"a"};
      operation.descriptor.type = OperationType::allreduce;
      operation.descriptor.tensors = {{DType::f32, Shape(length)}};
      program_.operations.push_back(operation);
    }
    judge_.emplace(program_, program_.operations, ledger_);
  }

  Ticket submit(int rank, int operation = 0, const std::string& name = "a") {
    return ledger_.submit(rank, ledger_.number_of({.name = name}), operation, now);
  }
  void execute(int rank, std::uint64_t sequence, std::vector<Ticket> tickets,
               const RankSet& absent = {}) {
    judge_->on_execute(rank, {.sequence = sequence,
                              .set = world_set,
                              .members = RankSet::range(0, 2),
                              .absent = absent,
                              .kind = {},
                              .tickets = std::move(tickets)});
  }
  void fail(int rank, Ticket ticket, FailureKind kind, const RankSet& ranks,
            const std::string& message = "because") {
    judge_->on_fail(rank, {ticket, {kind, message, "a", ranks}}, now);
  }

  template <typename Action>
  void expect_violation(const std::string& promise, Action action) {
    try {
      action();
      ADD_FAILURE() << "nothing was found";
    } catch (const Violation& violation) {
      EXPECT_EQ(violation.promise(), promise) << violation.what();
    }
  }

  Program program_;
  Ledger ledger_{3};
  std::optional<Judge> judge_;
};

TEST_F(JudgeTest, AcceptsWhatIsRight) {
  for (int rank = 0; rank < 3; ++rank) submit(rank);
  for (int rank = 0; rank < 3; ++rank) execute(rank, 0, {0});
  EXPECT_NO_THROW(judge_->conclude());
  EXPECT_EQ(judge_->answers(), 3U);
}

TEST_F(JudgeTest, NothingIsExecutedThatARankDidNotSubmit) {
  submit(0);
  submit(1);
  expect_violation("submitted", [&] { execute(0, 0, {0}); });
}

TEST_F(JudgeTest, NothingIsExecutedThatARankSubmittedDifferently) {
  submit(0);
  submit(1);
  submit(2, 1);
  expect_violation("submitted", [&] { execute(0, 0, {0}); });
}

TEST_F(JudgeTest, WhoHasNotJoinedIsNotLeftOut) {
  for (int rank = 0; rank < 3; ++rank) submit(rank);
  expect_violation("submitted", [&] { execute(0, 0, {0}, RankSet::of(2)); });
}

TEST_F(JudgeTest, NothingIsAnsweredTwice) {
  for (int rank = 0; rank < 3; ++rank) submit(rank);
  execute(0, 0, {0});
  expect_violation("answered once", [&] { execute(0, 1, {0}); });
}

TEST_F(JudgeTest, NothingIsLeftWithoutAnAnswer) {
  submit(1);
  expect_violation("deadlock", [&] { judge_->conclude(); });
}

TEST_F(JudgeTest, ABatchIsSeenByAllOfItsRanks) {
  for (int rank = 0; rank < 3; ++rank) submit(rank);
  execute(0, 0, {0});
  execute(1, 0, {0});
  expect_violation("answered once", [&] { execute(1, 1, {0}); });
  ledger_.settle(2, 0, Ledger::State::failed);
  expect_violation("content", [&] { judge_->conclude(); });
}

TEST_F(JudgeTest, BatchesComeInOneOrder) {
  for (int rank = 0; rank < 3; ++rank) {
    submit(rank);
    submit(rank, 1, "b");
  }
  execute(0, 0, {0});
  execute(0, 1, {1});
  execute(1, 1, {1});
  expect_violation("order", [&] { execute(1, 0, {0}); });
}

TEST_F(JudgeTest, BatchesHaveOneContent) {
  for (int rank = 0; rank < 3; ++rank) {
    submit(rank);
    submit(rank, 1, "b");
  }
  execute(0, 0, {0, 1});
  expect_violation("content", [&] { execute(1, 0, {1, 0}); });
}

TEST_F(JudgeTest, AMismatchMustBeOne) {
  for (int rank = 0; rank < 3; ++rank) submit(rank);
  expect_violation("error", [&] { fail(0, 0, FailureKind::mismatch, RankSet::range(0, 2)); });
}

TEST_F(JudgeTest, AMismatchNamesWhoDiffers) {
  submit(0);
  submit(1);
  submit(2, 1);
  const std::string right =
      "allreduce \"a\": the ranks disagree: shape [1] on ranks 0-1, [2] on rank 2";
  EXPECT_NO_THROW(fail(0, 0, FailureKind::mismatch, RankSet::range(0, 2), right));
  expect_violation("error", [&] {
    fail(1, 0, FailureKind::mismatch, RankSet::range(0, 2),
         "allreduce \"a\": the ranks disagree: shape [1] on ranks 0, 2, [2] on rank 1");
  });
}

TEST_F(JudgeTest, WhoMustFailIsNotExecuted) {
  submit(0);
  submit(1);
  submit(2, 1);
  fail(0, 0, FailureKind::mismatch, RankSet::range(0, 2),
       "allreduce \"a\": the ranks disagree: shape [1] on ranks 0-1, [2] on rank 2");
  expect_violation("error", [&] { fail(1, 0, FailureKind::shut_down, {}); });
}

TEST_F(JudgeTest, WhoIsSaidToHaveLeftHasLeft) {
  submit(0);
  submit(1);
  judge_->on_leave(2);
  EXPECT_NO_THROW(fail(0, 0, FailureKind::peer_left, RankSet::of(2)));
  submit(0);
  expect_violation("error", [&] { fail(0, 1, FailureKind::peer_left, RankSet::of(1)); });
}

TEST_F(JudgeTest, WhoIsSaidToBeLateIsLate) {
  for (int rank = 0; rank < 2; ++rank) submit(rank);
  const std::string message = "allreduce \"a\": not submitted by rank 1 within 2 s";
  expect_violation("error", [&] {
    judge_->on_fail(0, {0, {FailureKind::stalled, message, "a", RankSet::of(1)}},
                    now + std::chrono::seconds(3));
  });
}

}  // namespace
}  // namespace kolo::internal::simulation
