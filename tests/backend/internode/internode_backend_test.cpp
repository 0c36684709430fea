// SPDX-License-Identifier: Apache-2.0
// Properties of allgathers and reducescatters between hosts only; the tests of all backends cover
// the rest.
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>

#include "../mpi/counting_messenger.hpp"
#include "internode_fixture.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

class InterNodeAllreduce : public InterNodeTest {};

TEST_F(InterNodeAllreduce, BatchesRunSideBySideWithThoseInsideAHost) {
  const auto value = [&](std::size_t, std::int64_t k) {
    return static_cast<std::int64_t>(rank_ + 1) * (k % 9);
  };
  on_every_layout([&](const NodeOf& node_of) {
    std::vector<Tensors<std::int64_t>> tensors;
    std::vector<std::int64_t> factors;
    std::vector<std::unique_ptr<Execution>> executions;
    const int batch_count = 7;
    tensors.reserve(batch_count);
    for (int i = 0; i < batch_count; ++i) {
      tensors.emplace_back(Lengths{200 * i + 1}, true, value);
      Batch batch = batch_of(allreduce_of(ReduceOp::sum), tensors.back());
      const bool inside = i % 3 == 1;
      if (inside)
        std::erase_if(batch.ranks, [&](int rank) {
          return node_of[static_cast<std::size_t>(rank)] !=
                 node_of[static_cast<std::size_t>(rank_)];
        });
      factors.push_back(0);
      for (const int rank : batch.ranks) factors.back() += rank + 1;
      executions.push_back(inside ? hosts_->inside().start(std::move(batch))
                                  : hosts_->across().start(std::move(batch)));
    }
    finish_all(std::move(executions));
    for (std::size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(tensors[i].hold([&](std::size_t, std::int64_t k) { return factors[i] * (k % 9); },
                                  value));
  });
}

TEST_F(InterNodeAllreduce, TakesNothingElse) {
  on_every_layout([&](const NodeOf&) {
    Tensors<float> tensors({1}, true, [](std::size_t, std::int64_t) { return 1.0F; });
    const auto refuses = [&](const Batch& batch) {
      EXPECT_FALSE(hosts_->across().can_execute(batch));
      EXPECT_THROW(static_cast<void>(hosts_->across().start(batch)), InvalidArgument);
    };
    refuses(batch_of(allreduce_of(ReduceOp::adasum), tensors));
    refuses(batch_of(operation_of(OperationType::broadcast, 0), tensors));
    Batch alone = batch_of(allreduce_of(ReduceOp::sum), tensors);
    alone.ranks = {rank_};
    refuses(alone);
  });
}

template <typename T>
class InterNodeRows : public InterNodeTest {
 protected:
  void expect_bits_of_an_allreduce() {
    std::mt19937 random(static_cast<unsigned>(rank_ + 1));
    const std::int64_t rows = 2 * size_ + 1;
    const auto value = [&](std::size_t, std::int64_t) {
      return make<T>(static_cast<double>(random()) / 3e9 - 0.7);
    };
    Tensors<T> input({rows * 30}, true, value);
    BatchTensor& member = input.member(0);
    Tensors<T> whole({rows * 30}, false, [&](std::size_t, std::int64_t k) {
      return static_cast<const T*>(member.input)[k];
    });
    run(batch_of(allreduce_of(ReduceOp::average), whole));
    const std::int64_t own_rows = reducescatter_rows(rows, rank_, size_);
    Array<T> output(own_rows * 30);
    member.rows = rows;
    member.row_elements = 30;
    member.output = output.elements.get();
    run(batch_of(reduction_of(OperationType::reducescatter, ReduceOp::average), input));
    std::int64_t before = 0;
    for (int rank = 0; rank < rank_; ++rank) before += reducescatter_rows(rows, rank, size_) * 30;
    EXPECT_EQ(std::memcmp(output.elements.get(), whole.output(0).elements.get() + before,
                          static_cast<std::size_t>(output.length) * sizeof(T)),
              0);
  }
};
using Floating = testing::Types<float, double, F16>;
TYPED_TEST_SUITE(InterNodeRows, Floating);

TYPED_TEST(InterNodeRows, AReducescatterHasTheBitsOfAnAllreduce) {
  for (const std::int64_t slot : {std::int64_t{512}, std::int64_t{1} << 20})
    this->on_every_layout([&](const NodeOf&) { this->expect_bits_of_an_allreduce(); }, slot);
}

TYPED_TEST(InterNodeRows, AlsoIfEachRankIsAHost) {
  NodeOf alone(static_cast<std::size_t>(this->size_));
  std::iota(alone.begin(), alone.end(), 0);
  this->hosts_ = std::make_unique<MadeUpHosts>(this->comm_, alone, 512);
  this->expect_bits_of_an_allreduce();
  MPI_Barrier(this->comm_);
}

class InterNodeGather : public InterNodeTest {
 protected:
  /// An allgather among the given ranks.
  [[nodiscard]] Batch gather_among(std::vector<int> ranks, const Gathered<std::int32_t>& tensor) {
    Batch batch = batch_of(operation_of(OperationType::allgather));
    batch.ranks = std::move(ranks);
    batch.tensors.push_back(&tensor.member);
    return batch;
  }
};

TEST_F(InterNodeGather, AnyRanksMayTakePart) {
  on_every_layout([&](const NodeOf&) {
    for (unsigned mask = 1; mask < 1U << size_; ++mask) {
      std::vector<int> ranks;
      for (int rank = 0; rank < size_; ++rank)
        if ((mask >> rank & 1U) != 0) ranks.push_back(rank);
      Gathered<std::int32_t> tensor(10 * rank_ + 1, 9);
      std::iota(tensor.input.elements.get(), tensor.input.elements.get() + tensor.input.length,
                1000 * rank_);
      const Batch batch = gather_among(ranks, tensor);
      if ((mask >> rank_ & 1U) == 0 || !hosts_->across().can_execute(batch)) continue;
      SCOPED_TRACE(testing::PrintToString(ranks));
      run(batch);
      std::int64_t at = 0;
      for (const int rank : ranks) {
        ASSERT_EQ(tensor.rows[static_cast<std::size_t>(rank)], 10 * rank + 1);
        for (std::int32_t k = 0; k < 9 * (10 * rank + 1); ++k)
          ASSERT_EQ(tensor.output[at++], 1000 * rank + k);
      }
      ASSERT_EQ(at, tensor.output.length);
    }
  });
}

TEST_F(InterNodeGather, RowsMayLieInTheResult) {
  on_every_layout([&](const NodeOf&) {
    const std::int64_t length = 700;
    Array<std::int32_t> result(size_ * length);
    for (std::int64_t k = 0; k < length; ++k)
      result[rank_ * length + k] = static_cast<std::int32_t>(1000 * rank_ + k);
    Gathered<std::int32_t> tensor(length);
    tensor.member.input = result.elements.get() + rank_ * length;
    tensor.member.allocate = [&](std::span<const std::int64_t>) { return result.elements.get(); };
    Batch batch = batch_of(operation_of(OperationType::allgather));
    batch.tensors.push_back(&tensor.member);
    if (!hosts_->across().can_execute(batch)) return;
    run(std::move(batch));
    for (std::int64_t k = 0; k < result.length; ++k)
      ASSERT_EQ(result[k], 1000 * (k / length) + k % length);
  });
}

TEST_F(InterNodeGather, BatchesOfAllKindsRunSideBySide) {
  on_every_layout([&](const NodeOf&) {
    std::vector<std::unique_ptr<Gathered<std::int32_t>>> gathered;
    std::vector<Tensors<std::int32_t>> scattered;
    std::vector<Array<std::int32_t>> slices;
    std::vector<Tensors<std::int32_t>> reduced;
    std::vector<std::unique_ptr<Execution>> executions;
    const auto value = [&](std::size_t, std::int64_t k) {
      return static_cast<std::int32_t>(rank_ + k);
    };
    const std::int32_t ranks_sum = size_ * (size_ - 1) / 2;
    constexpr int rounds = 4;
    slices.reserve(rounds);
    scattered.reserve(rounds);
    reduced.reserve(rounds);
    const auto start = [&](Batch batch) {
      ASSERT_TRUE(hosts_->across().can_execute(batch));
      executions.push_back(hosts_->across().start(std::move(batch)));
    };
    for (int i = 0; i < rounds; ++i) {
      gathered.push_back(std::make_unique<Gathered<std::int32_t>>(300 * i + rank_));
      std::fill_n(gathered.back()->input.elements.get(), gathered.back()->input.length, rank_);
      std::vector<int> all(static_cast<std::size_t>(size_));
      std::iota(all.begin(), all.end(), 0);
      start(gather_among(all, *gathered.back()));
      const std::int64_t rows = 100 * i + 3;
      scattered.emplace_back(Lengths{rows}, true, value);
      slices.emplace_back(reducescatter_rows(rows, rank_, size_));
      scattered.back().member(0).output = slices.back().elements.get();
      start(batch_of(reduction_of(OperationType::reducescatter, ReduceOp::sum), scattered.back()));
      reduced.emplace_back(Lengths{500 * i + 1}, true, value);
      start(batch_of(allreduce_of(ReduceOp::sum), reduced.back()));
    }
    finish_all(std::move(executions));
    for (int i = 0; i < rounds; ++i) {
      const auto place = static_cast<std::size_t>(i);
      std::int64_t at = 0;
      for (int rank = 0; rank < size_; ++rank)
        for (int k = 0; k < 300 * i + rank; ++k) ASSERT_EQ(gathered[place]->output[at++], rank);
      std::int64_t before = 0;
      for (int rank = 0; rank < rank_; ++rank)
        before += reducescatter_rows(100 * i + 3, rank, size_);
      for (std::int64_t k = 0; k < slices[place].length; ++k)
        ASSERT_EQ(slices[place][k], ranks_sum + size_ * (before + k));
      EXPECT_TRUE(reduced[place].hold(
          [&](std::size_t, std::int64_t k) {
            return static_cast<std::int32_t>(ranks_sum + size_ * k);
          },
          value));
    }
  });
}

TEST_F(InterNodeGather, HostsOfOneRankEachHaveNothingToShare) {
  NodeOf alone(static_cast<std::size_t>(size_));
  std::iota(alone.begin(), alone.end(), 0);
  hosts_ = std::make_unique<MadeUpHosts>(comm_, alone, piece_bytes);
  EXPECT_FALSE(hosts_->across().can_execute(batch_of(operation_of(OperationType::allgather))));
  MPI_Barrier(comm_);
}

/// Bytes that the ranks of one host send to those of others.
class BytesBetweenHosts : public InterNodeTest {
 protected:
  void expect_bytes(const std::function<Batch()>& make_batch, std::int64_t rows_bytes) {
    on_every_layout([&](const NodeOf& node_of) {
      CountingMessenger messenger(hosts_->messenger());
      InterNodeBackend across(messenger, node_of, hosts_->inside().arena());
      const Batch batch = make_batch();
      if (!across.can_execute(batch)) return;
      std::vector<std::unique_ptr<Execution>> executions;
      executions.push_back(across.start(batch));
      finish_all(std::move(executions));
      const auto own_node = node_of[static_cast<std::size_t>(rank_)];
      std::int64_t sent = 0;
      for (int peer = 0; peer < size_; ++peer)
        if (node_of[static_cast<std::size_t>(peer)] != own_node) sent += messenger.sent_to(peer);
      EXPECT_EQ(messenger.sent_to_all(), sent) << "something went to the own host";
      MPI_Comm host = MPI_COMM_NULL;
      MPI_Comm_split(comm_, own_node, rank_, &host);
      MPI_Allreduce(MPI_IN_PLACE, &sent, 1, MPI_INT64_T, MPI_SUM, host);
      MPI_Comm_free(&host);
      EXPECT_EQ(sent, expected(batch, node_of, rows_bytes));
    });
  }

  /// Each rank's rows go to each other host once: in an allgather those of this host, with their
  /// number; in a reducescatter those of the ranks there.
  [[nodiscard]] std::int64_t expected(const Batch& batch, const NodeOf& node_of,
                                      std::int64_t rows_bytes) const {
    const int own_node = node_of[static_cast<std::size_t>(rank_)];
    const std::set<int> nodes(node_of.begin(), node_of.end());
    const auto here = std::ranges::count(node_of, own_node);
    if (batch.kind.type == OperationType::allgather)
      return here * (std::ssize(nodes) - 1) * (rows_bytes + std::int64_t{sizeof(std::int64_t)});
    return (size_ - here) * rows_bytes;
  }
};

TEST_F(BytesBetweenHosts, AnAllgatherSendsEachRowOnceToEachHost) {
  Gathered<float> tensor(1000);
  expect_bytes(
      [&] {
        Batch batch = batch_of(operation_of(OperationType::allgather));
        batch.tensors.push_back(&tensor.member);
        return batch;
      },
      4000);
}

TEST_F(BytesBetweenHosts, AReducescatterSendsEachRowOnceFromEachHost) {
  Tensors<float> tensors({1000 * size_}, true, [](std::size_t, std::int64_t) { return 1.0F; });
  Array<float> output(1000);
  tensors.member(0).output = output.elements.get();
  expect_bytes(
      [&] { return batch_of(reduction_of(OperationType::reducescatter, ReduceOp::sum), tensors); },
      4000);
}

}  // namespace
}  // namespace kolo::internal::backend
