// SPDX-License-Identifier: Apache-2.0
// Several batches at once, batches of some ranks, barriers, and refused calls.
#include <algorithm>
#include <deque>
#include <random>
#include <string>

#include "fixture.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

class BackendOrder : public BackendTest {
 protected:
  /// Steps the executions in a random order of this rank's own.
  void finish_all(std::vector<std::unique_ptr<Execution>> running) {
    std::mt19937 random(static_cast<unsigned>(rank_));
    while (!running.empty()) {
      const std::size_t chosen = random() % running.size();
      const Progress progress = running[chosen]->step();
      if (progress == Progress::waiting) std::this_thread::yield();
      if (progress == Progress::done)
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
  }
};

TEST_F(BackendOrder, BatchesUnderWayAtOnceNeedNotBeSteppedAlike) {
  constexpr int batches = 40;
  std::deque<Tensors<float>> floats;
  std::deque<Tensors<std::int64_t>> integers;
  std::deque<std::string> texts;
  std::deque<BatchTensor> text_members;
  std::vector<std::unique_ptr<Execution>> running;
  const auto float_value = [&](std::size_t, std::int64_t k) {
    return static_cast<float>(k % 100 + rank_);
  };
  const auto integer_value = [&](std::size_t, std::int64_t k) { return k + 1000 * rank_; };
  for (int i = 0; i < batches; ++i) {
    const std::int64_t length = i * 37 % 400;
    Batch batch = batch_of({});
    batch.kind.root = i % size_;
    switch (i % 4) {
      case 0:
        batch.kind = allreduce_of(ReduceOp::sum);
        floats.emplace_back(Lengths{length}, true, float_value).add_to(batch);
        break;
      case 1:
        batch.kind.type = OperationType::broadcast;
        integers.emplace_back(Lengths{length}, true, integer_value).add_to(batch);
        break;
      case 2:
        batch.kind.type = OperationType::broadcast_string;
        texts.emplace_back(rank_ == i % size_ ? static_cast<std::size_t>(5 * length) : 1, 'a');
        batch.tensors.push_back(&text_members.emplace_back(BatchTensor{.text = &texts.back()}));
        break;
      default: batch.kind.type = OperationType::barrier;
    }
    running.push_back(backend_->start(std::move(batch)));
  }
  finish_all(std::move(running));
  for (Tensors<float>& tensors : floats)
    EXPECT_TRUE(tensors.hold(
        [&](std::size_t, std::int64_t k) {
          return static_cast<float>(size_ * (k % 100) + size_ * (size_ - 1) / 2);
        },
        float_value));
  for (std::size_t n = 0; n < integers.size(); ++n) {
    const int root = (4 * static_cast<int>(n) + 1) % size_;
    EXPECT_TRUE(integers[n].hold([=](std::size_t, std::int64_t k) { return k + 1000 * root; },
                                 integer_value));
  }
  for (std::size_t n = 0; n < texts.size(); ++n)
    EXPECT_EQ(texts[n], std::string(5 * ((4 * n + 2) * 37 % 400), 'a'));
}

TEST_F(BackendOrder, BatchesOfDifferentRanksRunSideBySide) {
  // Allreduces of all ranks, of the even ranks, and of each rank alone, several times and all at
  // once.
  const auto value = [&](std::size_t, std::int64_t k) {
    return static_cast<double>(k % 50 + rank_);
  };
  std::vector<int> even;
  for (int rank = 0; rank < size_; rank += 2) even.push_back(rank);
  std::vector<std::unique_ptr<Execution>> running;
  std::deque<std::pair<Tensors<double>, std::vector<int>>> tensors;
  for (int i = 0; i < 12; ++i) {
    Batch batch = batch_of(allreduce_of(ReduceOp::sum));
    if (i % 3 == 1) batch.ranks = even;
    if (i % 3 == 2) batch.ranks = {rank_};
    if (std::ranges::find(batch.ranks, rank_) == batch.ranks.end()) continue;
    auto& made = tensors.emplace_back(Tensors<double>({i * 100, 1}, true, value), batch.ranks);
    made.first.add_to(batch);
    running.push_back(backend_->start(std::move(batch)));
  }
  finish_all(std::move(running));
  for (auto& [made, ranks] : tensors) {
    int sum_of_ranks = 0;
    for (const int rank : ranks) sum_of_ranks += rank;
    const auto number_of_ranks = static_cast<std::int64_t>(ranks.size());
    EXPECT_TRUE(made.hold(
        [&](std::size_t, std::int64_t k) {
          return static_cast<double>(number_of_ranks * (k % 50) + sum_of_ranks);
        },
        value));
  }
}

TEST_F(BackendOrder, EveryCollectiveWorksAmongSomeOfASet) {
  // The last rank has joined. The divisor is what the batch says.
  Batch batch = batch_of(allreduce_of(ReduceOp::average));
  if (size_ > 1) batch.ranks.pop_back();
  if (size_ > 1 && rank_ == size_ - 1) return;
  const int present = static_cast<int>(batch.ranks.size());
  const auto value = [&](std::size_t, std::int64_t) { return static_cast<float>(rank_ + 1); };
  Tensors<float> tensors({1000}, true, value);
  tensors.add_to(batch);
  batch.divisor = 2;
  Batch broadcast = batch;
  broadcast.kind = operation_of(OperationType::broadcast, present - 1);
  broadcast.sequence += 1;
  Batch barrier = broadcast;
  barrier.tensors.clear();
  barrier.kind = operation_of(OperationType::barrier);
  barrier.sequence += 1;
  run(batch);
  const auto expected = static_cast<float>(present * (present + 1)) / 4.0F;
  EXPECT_TRUE(tensors.hold([=](std::size_t, std::int64_t) { return expected; }, value));
  run(broadcast);
  EXPECT_TRUE(tensors.hold([=](std::size_t, std::int64_t) { return expected; }, value));
  run(barrier);
}

TEST_F(BackendOrder, ABarrierNeedsNothingOfTheOtherRanks) {
  // That there is a batch says that all have called it. Rank 0 begins when the others are done.
  const auto barrier = backend_->start(batch_of(operation_of(OperationType::barrier)));
  if (rank_ != 0) {
    finish(*barrier);
    MPI_Send(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    return;
  }
  for (int peer = 1; peer < size_; ++peer)
    MPI_Recv(nullptr, 0, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  finish(*barrier);
}

class BackendRefuses : public BackendTest {};

TEST_F(BackendRefuses, MemoryOfAGpu) {
  Batch batch = batch_of(allreduce_of(ReduceOp::sum));
  batch.kind.device = {DeviceType::cuda, 0};
  EXPECT_THROW(static_cast<void>(backend_->start(batch)), InvalidArgument);
}

TEST_F(BackendRefuses, RanksThatAreNotThere) {
  Batch batch = batch_of(operation_of(OperationType::barrier));
  batch.ranks.push_back(size_);
  EXPECT_THROW(static_cast<void>(backend_->start(batch)), InvalidArgument);
  batch.ranks = {};
  EXPECT_THROW(static_cast<void>(backend_->start(batch)), InvalidArgument);
}

TEST_F(BackendRefuses, WhatMovesNoData) {
  EXPECT_THROW(static_cast<void>(backend_->start(batch_of(operation_of(OperationType::join)))),
               InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::backend
