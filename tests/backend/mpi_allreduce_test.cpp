#include <cstring>
#include <limits>
#include <random>

#include "kolo/error.hpp"
#include "mpi_backend_fixture.hpp"

namespace kolo::backend {
namespace {

// Alone and fused; with pieces of 256 bytes some fit one, some end in the middle of one.
const std::vector<Lengths> batches{{0},          {1},          {3},
                                   {64},         {1000},       {0, 0},
                                   {1, 1, 1},    {3, 1000, 1}, {0, 40, 0, 500, 2},
                                   {32, 32, 32}, {1000, 1000}};

/// Small, so that sums over four ranks fit every type; different on every rank, in every tensor.
std::int64_t element(int rank, std::size_t tensor, std::size_t index) {
  return static_cast<std::int64_t>((index + 3 * tensor) % 11) + rank;
}

/// The sum of `element` over ranks 0 .. size-1.
std::int64_t sum_of_elements(int size, std::size_t tensor, std::size_t index) {
  return size * element(0, tensor, index) + size * (size - 1) / 2;
}

template <typename T>
class MpiAllreduceOfNumbers : public MpiBackendTest {
 protected:
  void expect_result(const Descriptor& kind, auto value, auto expected) {
    for (const Lengths& lengths : batches) {
      SCOPED_TRACE(testing::PrintToString(lengths));
      const auto tensors = make_tensors<T>(
          lengths, [&](std::size_t i, std::size_t k) { return make<T>(value(i, k)); });
      run(make_batch<T>(kind, tensors, lengths));
      EXPECT_TRUE(all_equal<T>(
          tensors, lengths, [&](std::size_t i, std::size_t k) { return make<T>(expected(i, k)); }));
    }
  }
};
using Numbers =
    testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t,
                   std::int32_t, std::uint64_t, std::int64_t, F16, BF16, float, double>;
TYPED_TEST_SUITE(MpiAllreduceOfNumbers, Numbers);

TYPED_TEST(MpiAllreduceOfNumbers, Sum) {
  this->expect_result(
      allreduce_of(dtype<TypeParam>(), ReduceOp::sum),
      [&](std::size_t i, std::size_t k) { return element(this->rank_, i, k); },
      [&](std::size_t i, std::size_t k) { return sum_of_elements(this->size_, i, k); });
}

TYPED_TEST(MpiAllreduceOfNumbers, AverageOfWholeNumbers) {
  // Ranks r and size-1-r add up to twice the average.
  this->expect_result(
      allreduce_of(dtype<TypeParam>(), ReduceOp::average),
      [&](std::size_t i, std::size_t k) { return 2 * element(this->rank_, i, k); },
      [&](std::size_t i, std::size_t k) { return 2 * element(0, i, k) + this->size_ - 1; });
}

TYPED_TEST(MpiAllreduceOfNumbers, Scales) {
  Descriptor kind = allreduce_of(dtype<TypeParam>(), ReduceOp::sum);
  kind.prescale = 2.0;
  kind.postscale = 0.5;
  this->expect_result(
      kind, [&](std::size_t i, std::size_t k) { return element(this->rank_, i, k); },
      [&](std::size_t i, std::size_t k) { return sum_of_elements(this->size_, i, k); });
}

template <typename T>
class MpiAllreduceOfIntegers : public MpiBackendTest {};
using Integers = testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t,
                                std::uint32_t, std::int32_t, std::uint64_t, std::int64_t>;
TYPED_TEST_SUITE(MpiAllreduceOfIntegers, Integers);

TYPED_TEST(MpiAllreduceOfIntegers, SumsWrap) {
  using T = TypeParam;
  const T largest = std::numeric_limits<T>::max();
  std::vector<T> values(100, largest);
  values[0] = std::numeric_limits<T>::min();
  this->run(batch_of(allreduce_of(dtype_of<T>, ReduceOp::sum), values.data(), 100));
  const auto wrapped = [&](T value) {
    return static_cast<T>(static_cast<std::uint64_t>(this->size_) *
                          static_cast<std::uint64_t>(value));
  };
  EXPECT_EQ(values[0], wrapped(std::numeric_limits<T>::min()));
  for (std::size_t i = 1; i < values.size(); ++i) ASSERT_EQ(values[i], wrapped(largest)) << i;
}

TYPED_TEST(MpiAllreduceOfIntegers, AveragesAreTruncatedTowardZero) {
  using T = TypeParam;
  constexpr int sign = std::numeric_limits<T>::is_signed ? -1 : 1;
  // The ranks' values add up to 5 size - 1 away from zero: 4 and a rest.
  std::vector<T> values(100, static_cast<T>(sign * (this->rank_ == 0 ? 4 : 5)));
  this->run(batch_of(allreduce_of(dtype_of<T>, ReduceOp::average), values.data(), 100));
  for (const T value : values) ASSERT_EQ(value, static_cast<T>(sign * 4));
}

class MpiAllreduce : public MpiBackendTest {};

TEST_F(MpiAllreduce, HalvesAreSummedInF32) {
  // In f16, 2048 + 1 is 2048 again, however often.
  std::vector<F16> values(100, make<F16>(rank_ == 0 ? 2048 : 1));
  run(batch_of(allreduce_of(DType::f16, ReduceOp::sum), values.data(), 100));
  const F16 expected = to_f16(2048.0F + static_cast<float>(size_ - 1));
  for (const F16 value : values) ASSERT_EQ(value.bits, expected.bits);
}

TEST_F(MpiAllreduce, AllRanksGetTheSameBits) {
  for (const std::int64_t piece :
       {std::int64_t{1} << 16, MpiBackend::default_piece_bytes, std::int64_t{1} << 30}) {
    MpiBackend backend(comm_, piece);
    for (const std::int64_t length : {1, 2, 3, 17, 1000, 16'384, 65'537, 5'000'000}) {
      const auto seed = static_cast<unsigned>(length * 10 + rank_);
      SCOPED_TRACE(testing::Message() << length << " elements, pieces of " << piece);
      std::mt19937 random(seed);
      std::vector<float> values(static_cast<std::size_t>(length));
      for (float& value : values)
        value = static_cast<float>(random()) / 3e9F - 0.7F;  // any bits may be lost in the sum
      finish(*backend.start(batch_of(allreduce_of(DType::f32, ReduceOp::average), values.data(),
                                     static_cast<std::size_t>(length))));
      std::vector<float> of_root = values;
      MPI_Bcast(of_root.data(), static_cast<int>(length), MPI_FLOAT, 0, comm_);
      EXPECT_EQ(std::memcmp(values.data(), of_root.data(), values.size() * sizeof(float)), 0);
    }
  }
}

TEST_F(MpiAllreduce, BooleansHaveNoSum) {
  bool flag = true;
  EXPECT_THROW(static_cast<void>(backend_->start(
                   batch_of(allreduce_of(DType::boolean, ReduceOp::sum), &flag, 1))),
               InvalidArgument);
  // The refused batch leaves no gap in the order.
  float value = 1;
  run(batch_of(allreduce_of(DType::f32, ReduceOp::sum), &value, 1));
  EXPECT_EQ(value, static_cast<float>(size_));
}

}  // namespace
}  // namespace kolo::backend
