// Several batches at once, barriers, and what is refused.
#include <algorithm>
#include <deque>
#include <random>
#include <string>

#include "kolo/error.hpp"
#include "mpi_backend_fixture.hpp"

namespace kolo::backend {
namespace {

class MpiBackendOrder : public MpiBackendTest {};

TEST_F(MpiBackendOrder, BatchesUnderWayAtOnceNeedNotBeSteppedAlike) {
  // Every rank steps the batches in a random order of its own.
  constexpr int batches = 40;
  std::mt19937 random(static_cast<unsigned>(rank_));
  std::deque<std::vector<float>> floats;
  std::deque<std::vector<std::int64_t>> integers;
  std::deque<std::string> texts;
  std::vector<std::unique_ptr<Execution>> running;
  for (int i = 0; i < batches; ++i) {
    const auto length = static_cast<std::size_t>(i * 37 % 400);
    switch (i % 4) {
      case 0:
        floats.emplace_back(length, static_cast<float>(i + rank_));
        running.push_back(backend_->start(
            batch_of(allreduce_of(DType::f32, ReduceOp::sum), floats.back().data(), length)));
        break;
      case 1:
        integers.emplace_back(length, i + 100 * rank_);
        running.push_back(backend_->start(
            batch_of(broadcast_of(DType::i64, i % size_), integers.back().data(), length)));
        break;
      case 2:
        texts.emplace_back(rank_ == 0 ? 5 * length : 1, 'a');
        running.push_back(backend_->start(text_from(0, texts.back())));
        break;
      default: running.push_back(backend_->start(Batch{}));
    }
  }
  while (!running.empty()) {
    const std::size_t chosen = random() % running.size();
    if (running[chosen]->step() == Progress::done)
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  for (std::size_t n = 0; n < floats.size(); ++n) {
    const int i = 4 * static_cast<int>(n);
    const auto expected = static_cast<float>(size_ * i + size_ * (size_ - 1) / 2);
    EXPECT_TRUE(std::ranges::all_of(floats[n], [&](float x) { return x == expected; })) << i;
  }
  for (std::size_t n = 0; n < integers.size(); ++n) {
    const int i = 4 * static_cast<int>(n) + 1;
    const std::int64_t expected = i + 100 * (i % size_);
    EXPECT_TRUE(std::ranges::all_of(integers[n], [&](auto x) { return x == expected; })) << i;
  }
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const int i = 4 * static_cast<int>(n) + 2;
    EXPECT_TRUE(texts[n] == std::string(static_cast<std::size_t>(5 * (i * 37 % 400)), 'a')) << i;
  }
}

TEST_F(MpiBackendOrder, ALaterBatchMayBeDoneFirst) {
  std::vector<double> large(10'000, 1.0);
  double small = 1.0;
  const Descriptor kind = allreduce_of(DType::f64, ReduceOp::sum);
  const auto first = backend_->start(batch_of(kind, large.data(), large.size()));
  const auto second = backend_->start(batch_of(kind, &small, 1));
  bool first_done = false;
  bool second_done = false;
  while (!first_done || !second_done) {
    if (!second_done) second_done = second->step() == Progress::done;
    if (!first_done) first_done = first->step() == Progress::done;
  }
  EXPECT_EQ(small, size_);
  EXPECT_TRUE(std::ranges::all_of(large, [&](double x) { return x == size_; }));
}

TEST_F(MpiBackendOrder, ABarrierIsDoneOnlyWhenAllHaveEntered) {
  const auto barrier = backend_->start(Batch{});
  if (rank_ == 0) {
    // The others' word that they are still inside comes before this rank enters.
    for (int peer = 1; peer < size_; ++peer)
      MPI_Recv(nullptr, 0, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(barrier->step(), Progress::waiting);
    MPI_Send(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
  finish(*barrier);
}

class MpiBackendRefuses : public MpiBackendTest {};

TEST_F(MpiBackendRefuses, MemoryOfAGpu) {
  Batch batch;
  batch.kind = allreduce_of(DType::f32, ReduceOp::sum);
  batch.kind.device = {DeviceType::cuda, 0};
  EXPECT_THROW(static_cast<void>(backend_->start(batch)), InvalidArgument);
}

TEST_F(MpiBackendRefuses, PiecesOfNoUse) {
  EXPECT_THROW(MpiBackend(comm_, 0), InvalidArgument);
  EXPECT_THROW(MpiBackend(comm_, std::int64_t{1} << 31), InvalidArgument);
}

TEST_F(MpiBackendRefuses, ARootThatMpiDoesNotKnow) {
  float value = 0;
  const auto execution = backend_->start(batch_of(broadcast_of(DType::f32, size_), &value, 1));
  try {
    static_cast<void>(execution->step());
    ADD_FAILURE();
  } catch (const BackendError& error) {
    EXPECT_NE(std::string(error.what()).find("MPI_Ibcast"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("root"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kolo::backend
