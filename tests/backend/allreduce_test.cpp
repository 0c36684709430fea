// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <limits>
#include <random>

#include "base/dtype.hpp"
#include "fixture.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

// Alone and fused; with pieces of 256 bytes some fit one, some end in the middle of one.
const std::vector<Lengths> lengths_of_batches{{},
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

template <typename T>
class AllreduceOfNumbers : public BackendTest {
 protected:
  void expect_result(const Descriptor& kind, auto value, auto expected) {
    const auto value_of_type = [&](std::size_t i, std::int64_t k) { return make<T>(value(i, k)); };
    const auto expected_of_type = [&](std::size_t i, std::int64_t k) {
      return make<T>(expected(i, k));
    };
    for (const Lengths& lengths : lengths_of_batches) {
      for (const bool in_place : {true, false}) {
        SCOPED_TRACE(testing::PrintToString(lengths) + (in_place ? " in place" : ""));
        Tensors<T> tensors(lengths, in_place, value_of_type);
        run(batch_of(kind, tensors));
        EXPECT_TRUE(tensors.hold(expected_of_type, value_of_type));
      }
    }
  }
};
TYPED_TEST_SUITE(AllreduceOfNumbers, Numbers);

TYPED_TEST(AllreduceOfNumbers, Sum) {
  this->expect_result(
      allreduce_of(ReduceOp::sum),
      [&](std::size_t i, std::int64_t k) { return element(this->rank_, i, k); },
      [&](std::size_t i, std::int64_t k) { return sum_of_elements(this->size_, i, k); });
}

TYPED_TEST(AllreduceOfNumbers, AverageOfWholeNumbers) {
  // Ranks r and size-1-r add up to twice the average.
  this->expect_result(
      allreduce_of(ReduceOp::average),
      [&](std::size_t i, std::int64_t k) { return 2 * element(this->rank_, i, k); },
      [&](std::size_t i, std::int64_t k) { return 2 * element(0, i, k) + this->size_ - 1; });
}

TYPED_TEST(AllreduceOfNumbers, MinAndMax) {
  const auto value = [&](std::size_t i, std::int64_t k) { return element(this->rank_, i, k); };
  this->expect_result(allreduce_of(ReduceOp::min), value,
                      [&](std::size_t i, std::int64_t k) { return element(0, i, k); });
  this->expect_result(allreduce_of(ReduceOp::max), value, [&](std::size_t i, std::int64_t k) {
    return element(this->size_ - 1, i, k);
  });
}

TYPED_TEST(AllreduceOfNumbers, Product) {
  // The rank k % size has a 3, the others have ones.
  this->expect_result(
      allreduce_of(ReduceOp::product),
      [&](std::size_t, std::int64_t k) { return k % this->size_ == this->rank_ ? 3 : 1; },
      [&](std::size_t, std::int64_t) { return 3; });
}

TYPED_TEST(AllreduceOfNumbers, Scales) {
  Descriptor kind = allreduce_of(ReduceOp::sum);
  kind.prescale = 2.0;
  kind.postscale = 0.5;
  this->expect_result(
      kind, [&](std::size_t i, std::int64_t k) { return element(this->rank_, i, k); },
      [&](std::size_t i, std::int64_t k) { return sum_of_elements(this->size_, i, k); });
}

TYPED_TEST(AllreduceOfNumbers, Compression) {
  // Small whole numbers are exact in both types.
  for (const auto compression : {kolo::Compression::fp16, kolo::Compression::bf16}) {
    this->expect_result(
        allreduce_of(ReduceOp::sum, compression),
        [&](std::size_t i, std::int64_t k) { return element(this->rank_, i, k); },
        [&](std::size_t i, std::int64_t k) { return sum_of_elements(this->size_, i, k); });
  }
}

class Allreduce : public BackendTest {};

TEST_F(Allreduce, SlicesMayEndWithinTensors) {
  // Long ones and short ones, which are packed, in pieces of full size.
  start_anew(default_piece_bytes());
  for (const Lengths& lengths : {Lengths{700, 300, 5000, 900, 1, 6000}, Lengths(400, 250),
                                 Lengths(6000, 3), Lengths{8000, 0, 8000, 7999}}) {
    for (const bool in_place : {true, false}) {
      SCOPED_TRACE(testing::PrintToString(in_place));
      const auto value = [&](std::size_t i, std::int64_t k) {
        return static_cast<float>(element(rank_, i, k));
      };
      Tensors<float> tensors(lengths, in_place, value);
      run(batch_of(allreduce_of(ReduceOp::sum), tensors));
      const auto expected = [&](std::size_t i, std::int64_t k) {
        return static_cast<float>(sum_of_elements(size_, i, k));
      };
      EXPECT_TRUE(tensors.hold(expected, value));
    }
  }
}

TEST_F(Allreduce, IntegersWrap) {
  const std::uint8_t largest = std::numeric_limits<std::uint8_t>::max();
  const auto value = [=](std::size_t, std::int64_t) { return largest; };
  Tensors<std::uint8_t> tensors({1000}, true, value);
  run(batch_of(allreduce_of(ReduceOp::sum), tensors));
  const auto wrapped = static_cast<std::uint8_t>(256 - size_);
  EXPECT_TRUE(tensors.hold([=](std::size_t, std::int64_t) { return wrapped; }, value));
}

TEST_F(Allreduce, MembersMayDifferInType) {
  const Lengths lengths{40, 3};
  const auto value = [&](std::size_t i, std::int64_t k) { return element(rank_, i, k); };
  const auto sum = [&](std::size_t i, std::int64_t k) { return sum_of_elements(size_, i, k); };
  const auto as = [](auto type, auto function) {
    return [=](std::size_t i, std::int64_t k) { return make<decltype(type)>(function(i, k)); };
  };
  for (const Compression compression : {Compression::none, Compression::fp16}) {
    Tensors<float> floats(lengths, true, as(float{}, value));
    Tensors<F16> halves(lengths, true, as(F16{}, value));
    Tensors<std::int64_t> integers(lengths, false, as(std::int64_t{}, value));
    Tensors<float> more(lengths, false, as(float{}, value));
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
}

TEST_F(Allreduce, HalvesAreSummedInF32) {
  // In f16, 2048 + 1 is 2048 again, however often.
  const auto value = [&](std::size_t, std::int64_t) { return make<F16>(rank_ == 0 ? 2048 : 1); };
  Tensors<F16> tensors({100}, true, value);
  run(batch_of(allreduce_of(ReduceOp::sum), tensors));
  EXPECT_TRUE(
      tensors.hold([&](std::size_t, std::int64_t) { return make<F16>(2048 + size_ - 1); }, value));
}

TEST_F(Allreduce, CompressionRoundsWhatTravels) {
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
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::product}) {
    Tensors<bool> tensors({1, 1000}, false, all);
    run(batch_of(allreduce_of(op), tensors));
    EXPECT_TRUE(tensors.hold([](std::size_t, std::int64_t k) { return k % 2 == 0; }, all));
  }
  Tensors<bool> tensors({1, 1000}, false, one);
  run(batch_of(allreduce_of(ReduceOp::max), tensors));
  EXPECT_TRUE(tensors.hold([](std::size_t, std::int64_t) { return true; }, one));
}

TEST_F(Allreduce, AllRanksGetTheSameBits) {
  for (const std::int64_t piece :
       {std::int64_t{1} << 12, default_piece_bytes(), large_piece_bytes()}) {
    start_anew(piece);
    for (const Compression compression : {Compression::none, Compression::bf16}) {
      for (const std::int64_t length : {1, 2, 3, 17, 1000, 16'384, 65'537, 1'000'000}) {
        SCOPED_TRACE(testing::Message() << length << " elements, pieces of " << piece
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
