// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>

#include "base/dtype.hpp"
#include "fixture.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

// Single and fused tensors. With pieces of 256 bytes some fit one, some end in the middle of one.
const std::vector<Lengths> many_batches{{},
                                        {0},
                                        {1},
                                        {3},
                                        {64},
                                        {1000},
                                        {0, 0},
                                        {1, 1, 1},
                                        {3, 1000, 1},
                                        {32, 32, 32},
                                        {1000, 1000},
                                        {0, 40, 0, 500, 2},
                                        {5, 300, 7, 7, 300, 100, 20}};
// For backends with several variants.
const std::vector<Lengths> few_batches{
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
class AllreduceOfNumbers : public BackendTest {
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
    on_every_variant([&] {
      for (const Lengths& lengths : variants(size_).size() > 1 ? few_batches : many_batches) {
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
TYPED_TEST_SUITE(AllreduceOfNumbers, Numbers);

TYPED_TEST(AllreduceOfNumbers, Sum) {
  this->expect_result(allreduce_of(ReduceOp::sum), this->own_small(), this->sum());
}

TYPED_TEST(AllreduceOfNumbers, AverageIsDividedAtTheEnd) {
  // Ranks r and size-1-r add up to twice the average.
  this->expect_result(
      allreduce_of(ReduceOp::average),
      [&](std::size_t i, std::int64_t k) { return 2 * small(this->rank_, i, k); },
      [&](std::size_t i, std::int64_t k) { return 2 * small(0, i, k) + this->size_ - 1; });
}

TYPED_TEST(AllreduceOfNumbers, MinAndMax) {
  this->expect_result(allreduce_of(ReduceOp::min), this->own_small(),
                      [](std::size_t i, std::int64_t k) { return small(0, i, k); });
  this->expect_result(allreduce_of(ReduceOp::max), this->own_small(),
                      [&](std::size_t i, std::int64_t k) { return small(this->size_ - 1, i, k); });
}

TYPED_TEST(AllreduceOfNumbers, Product) {
  // The rank k % size has a 3, the others have ones.
  this->expect_result(
      allreduce_of(ReduceOp::product),
      [&](std::size_t, std::int64_t k) { return k % this->size_ == this->rank_ ? 3 : 1; },
      [](std::size_t, std::int64_t) { return 3; });
}

TYPED_TEST(AllreduceOfNumbers, ScalesAreAppliedOnce) {
  Descriptor kind = allreduce_of(ReduceOp::sum);
  kind.prescale = 2.0;
  kind.postscale = 0.5;
  this->expect_result(kind, this->own_small(), this->sum());
}

TYPED_TEST(AllreduceOfNumbers, Compression) {
  // Small whole numbers are exact in both types.
  for (const auto compression : {kolo::Compression::fp16, kolo::Compression::bf16})
    this->expect_result(allreduce_of(ReduceOp::sum, compression), this->own_small(), this->sum());
}

class Allreduce : public BackendTest {};

TEST_F(Allreduce, SlicesMayEndWithinTensors) {
  // Long tensors, and short ones, which are packed, in pieces of full size.
  const auto value = [&](std::size_t i, std::int64_t k) {
    return static_cast<float>(element(rank_, i, k));
  };
  const auto expected = [&](std::size_t i, std::int64_t k) {
    return static_cast<float>(sum_of_elements(size_, i, k));
  };
  on_every_variant(
      [&] {
        for (const Lengths& lengths : {Lengths{700, 300, 5000, 900, 1, 6000}, Lengths(400, 250),
                                       Lengths(6000, 3), Lengths{8000, 0, 8000, 7999}}) {
          for (const bool in_place : {true, false}) {
            SCOPED_TRACE(testing::PrintToString(in_place));
            Tensors<float> tensors(lengths, in_place, value);
            run(batch_of(allreduce_of(ReduceOp::sum), tensors));
            EXPECT_TRUE(tensors.hold(expected, value));
          }
        }
      },
      default_piece_bytes());
}

TEST_F(Allreduce, IntegersWrap) {
  const std::uint8_t largest = std::numeric_limits<std::uint8_t>::max();
  const auto value = [=](std::size_t, std::int64_t) { return largest; };
  const auto wrapped = static_cast<std::uint8_t>(256 - size_);
  on_every_variant([&] {
    Tensors<std::uint8_t> tensors({1000}, true, value);
    run(batch_of(allreduce_of(ReduceOp::sum), tensors));
    EXPECT_TRUE(tensors.hold([=](std::size_t, std::int64_t) { return wrapped; }, value));
  });
}

TEST_F(Allreduce, IntegerAveragesAreTruncatedOnce) {
  // The sums of single hosts need not be multiples of the size.
  const auto value = [&](std::size_t, std::int64_t) { return std::int32_t{rank_}; };
  const std::int32_t expected = size_ * (size_ - 1) / 2 / size_;
  on_every_variant([&] {
    Tensors<std::int32_t> tensors({1, 1000}, true, value);
    run(batch_of(allreduce_of(ReduceOp::average), tensors));
    EXPECT_TRUE(tensors.hold([=](std::size_t, std::int64_t) { return expected; }, value));
  });
}

TEST_F(Allreduce, MembersMayDifferInType) {
  const auto value = [&](std::size_t i, std::int64_t k) { return small(rank_, i, k); };
  const auto sum = [&](std::size_t i, std::int64_t k) { return sum_of_small(size_, i, k); };
  const auto as = [](auto type, auto function) {
    return [=](std::size_t i, std::int64_t k) { return make<decltype(type)>(function(i, k)); };
  };
  on_every_variant([&] {
    for (const Compression compression : {Compression::none, Compression::fp16}) {
      Tensors<float> floats({40, 3}, true, as(float{}, value));
      Tensors<F16> halves({40, 700}, true, as(F16{}, value));
      Tensors<std::int64_t> integers({300, 3}, false, as(std::int64_t{}, value));
      Tensors<float> more({40, 3}, false, as(float{}, value));
      Batch batch = batch_of(allreduce_of(ReduceOp::sum, compression));
      floats.add_to(batch);
      halves.add_to(batch);
      integers.add_to(batch);
      more.add_to(batch);
      run(batch);
      EXPECT_TRUE(floats.hold(as(float{}, sum), as(float{}, value)));
      EXPECT_TRUE(halves.hold(as(F16{}, sum), as(F16{}, value)));
      EXPECT_TRUE(integers.hold(as(std::int64_t{}, sum), as(std::int64_t{}, value)));
      EXPECT_TRUE(more.hold(as(float{}, sum), as(float{}, value)));
    }
  });
}

TEST_F(Allreduce, HalvesAreRoundedOnce) {
  // In f16, 2048 + 1 is 2048 again, however often. Sums are in f32.
  const auto value = [&](std::size_t, std::int64_t) { return make<F16>(rank_ == 0 ? 2048 : 1); };
  const auto expected = [&](std::size_t, std::int64_t) { return make<F16>(2048 + size_ - 1); };
  on_every_variant([&] {
    for (const Lengths& lengths : {Lengths{1}, Lengths{100}, Lengths{3000}}) {
      Tensors<F16> tensors(lengths, true, value);
      run(batch_of(allreduce_of(ReduceOp::sum), tensors));
      EXPECT_TRUE(tensors.hold(expected, value));
    }
  });
}

TEST_F(Allreduce, CompressionRoundsWhatTravels) {
  if (variants(size_).size() > 1) GTEST_SKIP() << "sums of hosts travel, not single values";
  // 2049 and 257 are halfway between two values of f16 and bf16: they travel as the even ones.
  const auto sum_of = [&](float sent, Compression compression) {
    const auto value = [=](std::size_t, std::int64_t) { return sent; };
    Tensors<float> tensors({500}, true, value);
    run(batch_of(allreduce_of(ReduceOp::average, compression), tensors));
    return tensors.output(0)[499];
  };
  EXPECT_EQ(sum_of(2049.0F, Compression::fp16), 2048.0F);
  EXPECT_EQ(sum_of(2049.0F, Compression::none), 2049.0F);
  EXPECT_EQ(sum_of(257.0F, Compression::bf16), 256.0F);
}

TEST_F(Allreduce, BooleansHaveAndAndOr) {
  const auto all = [&](std::size_t, std::int64_t k) { return k % 2 == 0 || rank_ > 0; };
  const auto one = [&](std::size_t, std::int64_t k) { return k % size_ == rank_; };
  on_every_variant([&] {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::product}) {
      Tensors<bool> tensors({1, 1000}, false, all);
      run(batch_of(allreduce_of(op), tensors));
      EXPECT_TRUE(tensors.hold([](std::size_t, std::int64_t k) { return k % 2 == 0; }, all));
    }
    Tensors<bool> tensors({1, 1000}, false, one);
    run(batch_of(allreduce_of(ReduceOp::max), tensors));
    EXPECT_TRUE(tensors.hold([](std::size_t, std::int64_t) { return true; }, one));
  });
}

TEST_F(Allreduce, AnyRanksMayTakePart) {
  const auto value = [&](std::size_t, std::int64_t k) {
    return static_cast<std::int32_t>((1 << rank_) * (k % 7));
  };
  on_every_variant([&] {
    for (unsigned mask = 1; mask < 1U << size_; ++mask) {
      Batch batch = batch_of(allreduce_of(ReduceOp::sum));
      const auto takes_part = [&](int rank) { return (mask >> rank & 1U) != 0; };
      std::erase_if(batch.ranks, [&](int rank) { return !takes_part(rank); });
      if (!takes_part(rank_)) continue;
      SCOPED_TRACE(testing::PrintToString(batch.ranks));
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

class AllreduceBits : public BackendTest {
 protected:
  void expect_same_bits(std::int64_t length, Compression compression) {
    std::mt19937 random(static_cast<unsigned>(length * 10 + rank_));
    // Any bits may be lost in the sum.
    Tensors<float> tensors({length}, true, [&](std::size_t, std::int64_t) {
      return static_cast<float>(random()) / 3e9F - 0.7F;
    });
    run(batch_of(allreduce_of(ReduceOp::average, compression), tensors));
    const auto bytes = static_cast<std::size_t>(length) * sizeof(float);
    std::vector<std::byte> from_root(bytes);
    std::memcpy(from_root.data(), tensors.output(0).elements.get(), bytes);
    MPI_Bcast(from_root.data(), static_cast<int>(bytes), MPI_BYTE, 0, comm_);
    EXPECT_EQ(std::memcmp(tensors.output(0).elements.get(), from_root.data(), bytes), 0);
  }
};

TEST_F(AllreduceBits, AllRanksGetTheSame) {
  const bool few = variants(size_).size() > 1;
  for (const std::int64_t piece :
       {std::int64_t{1} << 12, default_piece_bytes(), large_piece_bytes()}) {
    if (few && piece > default_piece_bytes()) continue;
    on_every_variant(
        [&] {
          for (const Compression compression : {Compression::none, Compression::bf16})
            for (const std::int64_t length :
                 {1, 2, 3, 17, 1000, 16'384, 65'537, 700'000, 1'000'000}) {
              if ((few || size_ > 4) && length > (size_ > 4 ? 65'537 : 700'000)) continue;
              SCOPED_TRACE(testing::Message() << length << " elements, pieces of " << piece
                                              << ", the seed is the length * 10 + the rank");
              expect_same_bits(length, compression);
            }
        },
        piece);
  }
}

TEST_F(Allreduce, RefusesWhatHasNoMeaning) {
  Tensors<bool> tensors({1}, true, [](std::size_t, std::int64_t) { return true; });
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::adasum})
    EXPECT_THROW(static_cast<void>(backend_->start(batch_of(allreduce_of(op), tensors))),
                 InvalidArgument);
  Tensors<int> integers({1}, true, [](std::size_t, std::int64_t) { return 1; });
  EXPECT_THROW(
      static_cast<void>(backend_->start(batch_of(allreduce_of(ReduceOp::adasum), integers))),
      InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::backend
