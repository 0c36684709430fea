// SPDX-License-Identifier: Apache-2.0
// The order of batches in shared memory: dependent batches wait, independent ones do not. One
// thread drives all ranks.
#include "backend/shm/shm_backend.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <numeric>
#include <thread>
#include <utility>

#include "../tensors.hpp"
#include "backend/batch.hpp"
#include "backend/shm/sliced_allreduce.hpp"
#include "kolo/error.hpp"
#include "shm_host.hpp"

namespace kolo::internal::backend {
namespace {

constexpr std::int64_t bytes_per_piece = 256;
constexpr std::int64_t piece_elements = bytes_per_piece / 8;
constexpr std::int64_t many_pieces = 10 * shm::slot_count * piece_elements;

using Running = std::unique_ptr<Execution>;

/// Ranks whose numbers are not their places on the host.
class ShmBackendTest : public testing::Test {
 protected:
  static constexpr int hosts_first = 5;
  static int rank_of(int index) { return hosts_first + 2 * index; }
  static std::vector<int> ranks_of(std::vector<int> indices) {
    for (int& index : indices) index = rank_of(index);
    return indices;
  }

  ShmBackendTest() : host_(ranks_of({0, 1, 2}), bytes_per_piece) {}

  static Batch batch_of(Descriptor kind, std::uint64_t sequence, std::vector<int> indices) {
    Batch batch;
    batch.kind = std::move(kind);
    batch.set = ranks_of({0, 1, 2});
    batch.ranks = ranks_of(std::move(indices));
    batch.sequence = sequence;
    return batch;
  }

  Running start(int index, Batch batch) { return host_.backend(index).start(std::move(batch)); }
  Running start_barrier(int index, std::uint64_t sequence, std::vector<int> indices) {
    return start(index,
                 batch_of(operation_of(OperationType::barrier), sequence, std::move(indices)));
  }

  /// A sum of `elements` ones on each of the ranks.
  Batch sum(std::uint64_t sequence, std::vector<int> indices, std::int64_t elements,
            std::uint64_t mark = 0) {
    const auto ranks = static_cast<double>(indices.size());
    Batch batch = batch_of(allreduce_of(ReduceOp::sum), sequence, std::move(indices));
    batch.mark = mark;
    Tensors<double>& tensor = sums_.emplace_back(Sum{{{elements}, true, one}, ranks}).tensor;
    tensor.add_to(batch);
    return batch;
  }
  Running start_sum(int index, std::uint64_t sequence, std::vector<int> indices,
                    std::int64_t elements) {
    return start(index, sum(sequence, std::move(indices), elements));
  }
  Running prepare(int index, Batch batch) { return host_.backend(index).prepare(std::move(batch)); }

  void expect_sums() {
    for (Sum& sum : sums_)
      EXPECT_TRUE(sum.tensor.hold([&](std::size_t, std::int64_t) { return sum.expected; }, one));
  }

  /// Until nothing moves any more; those that are done become null.
  static void step_all(const std::vector<Running*>& running) {
    for (bool moved = true; std::exchange(moved, false);) {
      for (Running* execution : running) {
        if (*execution == nullptr) continue;
        const Progress progress = (*execution)->step();
        moved |= progress != Progress::waiting;
        if (progress == Progress::done) execution->reset();
      }
    }
  }
  static void finish(const std::vector<Running*>& running) {
    step_all(running);
    for (const Running* execution : running) EXPECT_EQ(*execution, nullptr);
  }

  static double one(std::size_t, std::int64_t) { return 1.0; }

  ShmHost host_;

 private:
  struct Sum {
    Tensors<double> tensor;
    double expected;
  };

  std::deque<Sum> sums_{};
};

TEST_F(ShmBackendTest, RefusesPiecesOfNoUse) {
  const auto make = [](std::int64_t bytes, int ranks) {
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    const ShmHost host(std::move(all), bytes);
  };
  EXPECT_NO_THROW(make(64, 8));
  EXPECT_NO_THROW(make(72, 9));
  for (const auto& [bytes, ranks] : {std::pair(0, 1), {8, 1}, {68, 1}, {64, 9}})
    EXPECT_THROW(make(bytes, ranks), InvalidArgument) << bytes << " bytes, " << ranks << " ranks";
}

TEST_F(ShmBackendTest, KnowsWhatItCanExecute) {
  const ShmBackend& backend = host_.backend(1);
  EXPECT_TRUE(backend.can_execute(batch_of(allreduce_of(ReduceOp::sum), 0, {0, 1})));
  EXPECT_TRUE(backend.can_execute(batch_of(operation_of(OperationType::barrier), 0, {1})));
  EXPECT_TRUE(backend.can_execute(batch_of(allreduce_of(ReduceOp::adasum), 0, {0, 1})));
  Batch batch = batch_of(operation_of(OperationType::barrier), 0, {0, 1});
  batch.ranks.push_back(rank_of(1) + 1);
  EXPECT_FALSE(backend.can_execute(batch));
  EXPECT_THROW((void)host_.backend(1).start(batch), InvalidArgument);
}

TEST_F(ShmBackendTest, RefusesBatchesOfOthers) {
  EXPECT_THAT(
      [&] {
        (void)start_barrier(2, 1, {0, 1});
      },
      testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("rank 9")));
  // A refused batch takes no place in a lane.
  auto a = start_barrier(0, 5, {0, 2});
  auto c = start_barrier(2, 5, {0, 2});
  finish({&a, &c});
}

TEST_F(ShmBackendTest, ABarrierNeedsNothingOfTheOtherRanks) {
  auto a = start_barrier(0, 1, {0, 1, 2});
  step_all({&a});
  EXPECT_EQ(a, nullptr);
}

TEST_F(ShmBackendTest, BatchesInAllLanesGoSideBySide) {
  constexpr std::uint64_t batches = 3 * shm::lane_count;
  std::vector<Running> a;
  std::vector<Running> b;
  for (std::uint64_t sequence = 0; sequence < batches; ++sequence) {
    a.push_back(start_sum(0, sequence, {0, 1}, many_pieces));
    b.push_back(start_sum(1, sequence, {0, 1}, many_pieces));
  }
  // The first of each lane can be finished in any order, none of the second before.
  for (std::size_t i = batches; i-- > shm::lane_count;) step_all({&a[i], &b[i]});
  for (std::size_t i = shm::lane_count; i < batches; ++i) EXPECT_NE(a[i], nullptr);
  for (std::size_t i = shm::lane_count; i-- > 0;) finish({&a[i], &b[i]});
  for (std::size_t i = shm::lane_count; i < batches; ++i) finish({&a[i], &b[i]});
  expect_sums();
}

TEST_F(ShmBackendTest, ARankThatDoesNothingHoldsUpItsOwnBatchesOnly) {
  auto a = start_sum(0, 0, {0, 1, 2}, many_pieces);
  auto b = start_sum(1, 0, {0, 1, 2}, many_pieces);
  auto c = start_sum(2, 0, {0, 1, 2}, many_pieces);
  auto a_with_b = start_sum(0, 1, {0, 1}, many_pieces);
  auto b_with_a = start_sum(1, 1, {0, 1}, many_pieces);
  step_all({&a, &b, &a_with_b, &b_with_a});
  EXPECT_EQ(a_with_b, nullptr);
  EXPECT_EQ(b_with_a, nullptr);
  EXPECT_NE(a, nullptr);
  finish({&a, &b, &c});
  expect_sums();
}

TEST_F(ShmBackendTest, ASlotIsKeptUntilASlowReaderHasReadIt) {
  // Rank 0 is done with the broadcast at once; whoever it meets next in that lane must wait.
  constexpr std::uint64_t next = shm::lane_count;
  const auto own = [](int index) {
    return [=](std::size_t, std::int64_t k) { return static_cast<double>(100 * index + k); };
  };
  Tensors<double> of_root({piece_elements}, true, own(0));
  Tensors<double> of_slow({piece_elements}, true, own(2));
  const auto broadcast = [&](int index, const Tensors<double>& tensors) {
    Batch batch = batch_of(operation_of(OperationType::broadcast, rank_of(0)), 0, {0, 2});
    tensors.add_to(batch);
    return start(index, std::move(batch));
  };
  auto a = broadcast(0, of_root);
  auto c = broadcast(2, of_slow);
  finish({&a});
  auto a_next = start_sum(0, next, {0, 1}, many_pieces);
  auto b_next = start_sum(1, next, {0, 1}, many_pieces);
  step_all({&a_next, &b_next});
  EXPECT_NE(a_next, nullptr);
  EXPECT_NE(b_next, nullptr);
  finish({&c});
  EXPECT_TRUE(of_slow.hold(own(0), own(2)));
  finish({&a_next, &b_next});
  expect_sums();
}

TEST_F(ShmBackendTest, BatchesWithoutElementsFreeNothing) {
  // As above, with batches of nothing between, whose ranks tell each other nothing.
  auto a = start_sum(0, 0, {0, 2}, piece_elements);
  auto c = start_sum(2, 0, {0, 2}, piece_elements);
  // Rank 2 deposits; then rank 0 is done, while rank 2 has not read.
  EXPECT_EQ(c->step(), Progress::moved);
  finish({&a});
  auto a_of_nothing = start_sum(0, shm::lane_count, {0, 1}, 0);
  auto b_of_nothing = start_sum(1, shm::lane_count, {0, 1}, 0);
  finish({&a_of_nothing, &b_of_nothing});
  auto a_next = start_sum(0, 2 * shm::lane_count, {0, 1}, piece_elements);
  auto b_next = start_sum(1, 2 * shm::lane_count, {0, 1}, piece_elements);
  step_all({&a_next, &b_next});
  EXPECT_NE(a_next, nullptr);
  finish({&c});
  finish({&a_next, &b_next});
  expect_sums();
}

TEST_F(ShmBackendTest, ARankThatIsFarAheadCountsAsDoneWithWhatIsBehind) {
  // Rank 1 goes on to later batches of the lane while rank 0 still collects the first.
  auto a = start_sum(0, 0, {0, 1}, piece_elements);
  auto b = start_sum(1, 0, {0, 1}, piece_elements);
  EXPECT_EQ(a->step(), Progress::moved);
  finish({&b});
  auto b_alone = start_sum(1, shm::lane_count, {1}, many_pieces);
  step_all({&b_alone});
  EXPECT_NE(b_alone, nullptr);  // its slots are being read
  finish({&a, &b_alone});
  expect_sums();
}

TEST_F(ShmBackendTest, WhatIsPreparedIsReadBeforeItsRankBegins) {
  constexpr std::uint64_t mark = 9;
  Running late = prepare(1, sum(0, {0, 1}, 8, mark));
  ASSERT_NE(late, nullptr);
  Running early = start(0, sum(0, {0, 1}, 8, mark));
  finish({&early});
  finish({&late});
  expect_sums();
}

TEST_F(ShmBackendTest, ManyPiecesArePreparedAsFarAsTheSlotsGo) {
  constexpr std::uint64_t mark = 9;
  Running late = prepare(1, sum(0, {0, 1, 2}, many_pieces, mark));
  Running early = start(0, sum(0, {0, 1, 2}, many_pieces, mark));
  Running third = prepare(2, sum(0, {0, 1, 2}, many_pieces, mark));
  step_all({&early});
  EXPECT_NE(early, nullptr);
  finish({&early, &late, &third});
  expect_sums();
}

/// However many they are, ranks that were asleep need to wake only once for a short tensor.
TEST(ShmBackendOfManyRanks, TheLastRankOfAShortBatchWaitsForNobodyAndNobodyWaitsForIt) {
  constexpr std::uint64_t mark = 9;
  std::vector<int> all(32);
  std::iota(all.begin(), all.end(), 0);
  const ShmHost host(all, bytes_per_piece);
  std::deque<Tensors<float>> tensors;
  const auto batch_of_rank = [&](int rank) {
    Batch batch;
    batch.kind = allreduce_of(ReduceOp::sum);
    batch.set = batch.ranks = all;
    batch.mark = mark;
    const auto value = [=](std::size_t, std::int64_t) { return static_cast<float>(rank); };
    tensors.emplace_back(std::vector<std::int64_t>{1}, true, value).add_to(batch);
    return batch;
  };
  std::vector<Running> asleep;
  for (int rank = 1; rank < 32; ++rank)
    asleep.push_back(host.backend(rank).prepare(batch_of_rank(rank)));
  EXPECT_EQ(host.backend(0).start(batch_of_rank(0))->step(), Progress::done);
  for (const Running& execution : asleep) EXPECT_EQ(execution->step(), Progress::done);
  for (std::size_t rank = 0; rank < tensors.size(); ++rank)
    EXPECT_TRUE(tensors[rank].hold([](std::size_t, std::int64_t) { return 496.0F; },
                                   [](std::size_t, std::int64_t) { return 0.0F; }));
}

TEST_F(ShmBackendTest, NobodyReadsWhatWasWithdrawn) {
  Tensors<double> other({8}, true, [](std::size_t, std::int64_t) { return 5.0; });
  Batch withdrawn = batch_of(allreduce_of(ReduceOp::sum), 0, {0, 1});
  withdrawn.mark = 9;
  other.add_to(withdrawn);
  prepare(1, withdrawn).reset();
  Running early = start_sum(0, 0, {0, 1}, 8);
  step_all({&early});
  ASSERT_NE(early, nullptr);
  Running late = start_sum(1, 0, {0, 1}, 8);
  finish({&early, &late});
  early = start(0, sum(2, {0, 1}, 8, 10));  // in the same lane, of the next plan
  step_all({&early});
  ASSERT_NE(early, nullptr);
  late = prepare(1, sum(2, {0, 1}, 8, 10));
  finish({&early, &late});
  expect_sums();
}

TEST_F(ShmBackendTest, ABatchBehindAnotherInItsLaneIsNotPrepared) {
  Running first = start_sum(1, 0, {0, 1}, 8);
  EXPECT_EQ(prepare(1, sum(shm::lane_count, {0, 1}, 8, 9)), nullptr);
  Running beside = prepare(1, sum(1, {0, 1}, 8, 8));
  EXPECT_NE(beside, nullptr);
  EXPECT_EQ(prepare(1, batch_of(operation_of(OperationType::barrier), 3, {0, 1})), nullptr);
}

TEST_F(ShmBackendTest, AStepEndsInTime) {
  // A rank alone waits for nobody, and still does not do all of a large batch at once.
  auto a = start_sum(0, 0, {0}, 1 << 20);
  EXPECT_EQ(a->step(), Progress::moved);
  finish({&a});
  expect_sums();
}

/// The part of an allreduce among several hosts that the ranks of one host do, without the other
/// hosts.
class AmongHosts : public shm::SlicedAllreduce {
 public:
  AmongHosts(shm::Arena& arena, Batch given, shm::LocalRanks ranks)
      : SlicedAllreduce(arena, std::move(given), std::move(ranks),
                        {2, 2, arena.slot_bytes(), Scope::host}) {}

 private:
  Progress combine(std::size_t number) override {
    const Slice own = own_slice(number);
    std::vector<std::byte> reduced(static_cast<std::size_t>(own.elements) * sizeof(std::uint16_t));
    reduce_inside(number, own, arithmetic_of(batch(), wire(number)), reduced.data());
    std::memcpy(result_of(number, own), reduced.data(), reduced.size());
    take_result(number, own, result_of(number, own));
    return Progress::done;
  }
};

/// Compressed, so that the owner of a slice reads its results from its slot too.
TEST(ShmBackendAmongHosts, TwoRanksReadResultsSideBySide) {
  constexpr std::int64_t elements = 5000;
  constexpr std::uint64_t batches = 200;
  const ShmHost host({0, 1}, 4096);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&host, rank] {
      for (std::uint64_t i = 0; i < batches; ++i) {
        Tensors<float> tensor({elements}, true, [](std::size_t, std::int64_t) { return 1.0F; });
        Batch batch;
        batch.kind = allreduce_of(ReduceOp::sum, Compression::fp16);
        tensor.add_to(batch);
        batch.set = batch.ranks = {0, 1};
        batch.sequence = i;
        AmongHosts execution(host.backend(rank).arena(), batch, {0, 1});
        while (execution.step() != Progress::done) std::this_thread::yield();
        const auto two = [](std::size_t, std::int64_t) { return 2.0F; };
        EXPECT_TRUE(tensor.hold(two, two));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ShmBackendTest, CountsBatchesWithoutOverflow) {
  // Where numbers of 32 to 63 bits end, as orders have nine times the sequence.
  for (int bits = 32; bits < 64; bits += 2) {
    const std::uint64_t last = (std::uint64_t{1} << bits) / Batch::parts;
    for (std::uint64_t sequence = last - 2; sequence < last + 3; ++sequence) {
      SCOPED_TRACE(testing::Message() << "sequence " << sequence);
      Running first = start_sum(0, sequence, {0, 1}, many_pieces);
      Running second = start_sum(1, sequence, {0, 1}, many_pieces);
      finish({&first, &second});
    }
  }
  expect_sums();
}

}  // namespace
}  // namespace kolo::internal::backend
