// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>

#include "backend/internode/placement.hpp"
#include "internode_fixture.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

// With pieces of 256 bytes some fit one, some end in the middle of one.
const std::vector<Lengths> batches{
    {}, {0}, {3}, {500}, {3, 400, 1}, {0, 40, 0, 500, 2}, {5, 200, 7, 7, 100, 20}};

/// Small, so that twice the sum over six ranks fits every type.
std::int64_t small(int rank, std::size_t tensor, std::int64_t index) {
  return (index + 3 * static_cast<std::int64_t>(tensor)) % 5 + rank;
}

/// The sum of `small` over all ranks.
std::int64_t sum_of_small(int size, std::size_t tensor, std::int64_t index) {
  return size * small(0, tensor, index) + size * (size - 1) / 2;
}

template <typename T>
class InterNodeAllreduceOf : public InterNodeTest {
 protected:
  // Four ranks cover every dtype. Six cover the algorithms for more hosts, which treat dtypes
  // alike.
  void SetUp() override {
    if (size_ > 4 && !std::is_same_v<T, float> && !std::is_same_v<T, std::int32_t>)
      GTEST_SKIP() << "covered with fewer ranks";
  }

  void expect_result(const Descriptor& kind, auto value, auto expected) {
    const auto value_of_type = [&](std::size_t i, std::int64_t k) { return make<T>(value(i, k)); };
    const auto expected_of_type = [&](std::size_t i, std::int64_t k) {
      return make<T>(expected(i, k));
    };
    on_every_layout([&](const NodeOf&) {
      for (const Lengths& lengths : batches) {
        for (const bool in_place : {true, false}) {
          SCOPED_TRACE(testing::PrintToString(lengths) + (in_place ? " in place" : ""));
          Tensors<T> tensors(lengths, in_place, value_of_type);
          run(batch_of(kind, tensors));
          EXPECT_TRUE(tensors.hold(expected_of_type, value_of_type));
        }
      }
    });
  }

  [[nodiscard]] auto own_small() const {
    return [this](std::size_t i, std::int64_t k) { return small(rank_, i, k); };
  }
  [[nodiscard]] auto sum() const {
    return [this](std::size_t i, std::int64_t k) { return sum_of_small(size_, i, k); };
  }
};
TYPED_TEST_SUITE(InterNodeAllreduceOf, Numbers);

TYPED_TEST(InterNodeAllreduceOf, Sum) {
  this->expect_result(allreduce_of(ReduceOp::sum), this->own_small(), this->sum());
}

TYPED_TEST(InterNodeAllreduceOf, AverageIsDividedAtTheEnd) {
  // Ranks r and size-1-r add up to twice the average.
  this->expect_result(
      allreduce_of(ReduceOp::average),
      [&](std::size_t i, std::int64_t k) { return 2 * small(this->rank_, i, k); },
      [&](std::size_t i, std::int64_t k) { return 2 * small(0, i, k) + this->size_ - 1; });
}

TYPED_TEST(InterNodeAllreduceOf, MinAndMax) {
  this->expect_result(allreduce_of(ReduceOp::min), this->own_small(),
                      [](std::size_t i, std::int64_t k) { return small(0, i, k); });
  this->expect_result(allreduce_of(ReduceOp::max), this->own_small(),
                      [&](std::size_t i, std::int64_t k) { return small(this->size_ - 1, i, k); });
}

TYPED_TEST(InterNodeAllreduceOf, Product) {
  // The rank k % size has a 3, the others have ones.
  this->expect_result(
      allreduce_of(ReduceOp::product),
      [&](std::size_t, std::int64_t k) { return k % this->size_ == this->rank_ ? 3 : 1; },
      [](std::size_t, std::int64_t) { return 3; });
}

TYPED_TEST(InterNodeAllreduceOf, ScalesAreAppliedOnce) {
  Descriptor kind = allreduce_of(ReduceOp::sum);
  kind.prescale = 2.0;
  kind.postscale = 0.5;
  this->expect_result(kind, this->own_small(), this->sum());
}

TYPED_TEST(InterNodeAllreduceOf, Compression) {
  for (const auto compression : {kolo::Compression::fp16, kolo::Compression::bf16})
    this->expect_result(allreduce_of(ReduceOp::sum, compression), this->own_small(), this->sum());
}

class InterNodeAllreduce : public InterNodeTest {};

TEST_F(InterNodeAllreduce, IntegerAveragesAreTruncatedOnce) {
  // On its own, no host's sum need be a multiple of the size.
  const auto value = [&](std::size_t, std::int64_t) { return std::int32_t{rank_}; };
  const std::int32_t expected = size_ * (size_ - 1) / 2 / size_;
  on_every_layout([&](const NodeOf&) {
    Tensors<std::int32_t> tensors({1, 1000}, true, value);
    run(batch_of(allreduce_of(ReduceOp::average), tensors));
    EXPECT_TRUE(tensors.hold([=](std::size_t, std::int64_t) { return expected; }, value));
  });
}

TEST_F(InterNodeAllreduce, HalvesAreRoundedOnce) {
  // In f16, 2048 + 1 is 2048 again, however often.
  const auto value = [&](std::size_t, std::int64_t) { return make<F16>(rank_ == 0 ? 2048 : 1); };
  const auto expected = [&](std::size_t, std::int64_t) { return make<F16>(2048 + size_ - 1); };
  on_every_layout([&](const NodeOf&) {
    for (const Lengths& lengths : {Lengths{1}, Lengths{3000}}) {
      Tensors<F16> tensors(lengths, true, value);
      run(batch_of(allreduce_of(ReduceOp::sum), tensors));
      EXPECT_TRUE(tensors.hold(expected, value));
    }
  });
}

TEST_F(InterNodeAllreduce, BooleansHaveAndAndOr) {
  const auto all = [&](std::size_t, std::int64_t k) { return k % 2 == 0 || rank_ > 0; };
  const auto one = [&](std::size_t, std::int64_t k) { return k % size_ == rank_; };
  on_every_layout([&](const NodeOf&) {
    Tensors<bool> conjunction({1, 1000}, false, all);
    run(batch_of(allreduce_of(ReduceOp::min), conjunction));
    EXPECT_TRUE(conjunction.hold([](std::size_t, std::int64_t k) { return k % 2 == 0; }, all));
    Tensors<bool> disjunction({1, 1000}, false, one);
    run(batch_of(allreduce_of(ReduceOp::max), disjunction));
    EXPECT_TRUE(disjunction.hold([](std::size_t, std::int64_t) { return true; }, one));
  });
}

TEST_F(InterNodeAllreduce, MembersMayDifferInType) {
  const auto as = [](auto type, auto function) {
    return [=](std::size_t i, std::int64_t k) { return make<decltype(type)>(function(i, k)); };
  };
  const auto value = [&](std::size_t i, std::int64_t k) { return small(rank_, i, k); };
  const auto sum = [&](std::size_t i, std::int64_t k) { return sum_of_small(size_, i, k); };
  on_every_layout([&](const NodeOf&) {
    for (const Compression compression : {Compression::none, Compression::fp16}) {
      Tensors<float> floats({40, 3}, true, as(float{}, value));
      Tensors<F16> halves({40, 700}, true, as(F16{}, value));
      Tensors<std::int64_t> integers({300, 3}, false, as(std::int64_t{}, value));
      Batch batch = batch_of(allreduce_of(ReduceOp::sum, compression));
      floats.add_to(batch);
      halves.add_to(batch);
      integers.add_to(batch);
      run(batch);
      EXPECT_TRUE(floats.hold(as(float{}, sum), as(float{}, value)));
      EXPECT_TRUE(halves.hold(as(F16{}, sum), as(F16{}, value)));
      EXPECT_TRUE(integers.hold(as(std::int64_t{}, sum), as(std::int64_t{}, value)));
    }
  });
}

TEST_F(InterNodeAllreduce, AnyRanksMayTakePart) {
  on_every_layout([&](const NodeOf& node_of) {
    for (unsigned mask = 1; mask < 1U << size_; ++mask) {
      Batch batch = batch_of(allreduce_of(ReduceOp::sum));
      const auto takes_part = [&](int rank) { return (mask >> rank & 1U) != 0; };
      std::erase_if(batch.ranks, [&](int rank) { return !takes_part(rank); });
      if (!takes_part(rank_) || !internode::Placement::of(batch.ranks, node_of).spans_hosts())
        continue;
      SCOPED_TRACE(testing::PrintToString(batch.ranks));
      const auto value = [&](std::size_t, std::int64_t k) {
        return static_cast<std::int32_t>((1 << rank_) * (k % 7));
      };
      Tensors<std::int32_t> tensors({300, 5}, true, value);
      tensors.add_to(batch);
      run(std::move(batch));
      EXPECT_TRUE(tensors.hold(
          [=](std::size_t, std::int64_t k) {
            return static_cast<std::int32_t>(static_cast<std::int64_t>(mask) * (k % 7));
          },
          value));
    }
  });
}

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

TEST_F(InterNodeAllreduce, AllRanksGetTheSameBits) {
  for (const std::int64_t slot : {std::int64_t{1} << 12, InterNodeBackend::default_slot_bytes}) {
    on_every_layout(
        [&](const NodeOf&) {
          for (const Compression compression : {Compression::none, Compression::bf16}) {
            for (const std::int64_t length : {1, 17, 1000, 65'537, 700'000}) {
              if (size_ > 4 && length > 65'537) continue;  // several pieces: with fewer ranks
              SCOPED_TRACE(testing::Message() << length << " elements, slots of " << slot
                                              << ", the seed is the length * 10 + the rank");
              std::mt19937 random(static_cast<unsigned>(length * 10 + rank_));
              // Any bits may be lost in the sum.
              Tensors<float> tensors({length}, true, [&](std::size_t, std::int64_t) {
                return static_cast<float>(random()) / 3e9F - 0.7F;
              });
              run(batch_of(allreduce_of(ReduceOp::average, compression), tensors));
              const auto bytes = static_cast<std::size_t>(length) * sizeof(float);
              std::vector<std::byte> of_root(bytes);
              std::memcpy(of_root.data(), tensors.output(0).elements.get(), bytes);
              MPI_Bcast(of_root.data(), static_cast<int>(bytes), MPI_BYTE, 0, comm_);
              EXPECT_EQ(std::memcmp(tensors.output(0).elements.get(), of_root.data(), bytes), 0);
            }
          }
        },
        slot);
  }
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

}  // namespace
}  // namespace kolo::internal::backend
