// SPDX-License-Identifier: Apache-2.0
// Tensors in memory that the other ranks of the host read in place.
#include "kolo/shared_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "fixture.hpp"
#include "kolo/kolo.hpp"

namespace kolo::internal {
namespace {

// Lengths around those of pieces, in floats.
constexpr std::int64_t lengths[] = {0, 1, 1000, 65536, 65537, 300001};

float element(int rank, std::int64_t index) {
  return static_cast<float>((index % 97) + 100 * static_cast<std::int64_t>(rank));
}

template <typename Vector>
void fill(Vector& tensor) {
  const int own = rank();
  for (std::size_t i = 0; i < tensor.size(); ++i)
    tensor[i] = element(own, static_cast<std::int64_t>(i));
}

template <typename Vector>
testing::AssertionResult holds_sums(const Vector& tensor) {
  const auto ranks = static_cast<std::int64_t>(size());
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const std::int64_t sum =
        ranks * (static_cast<std::int64_t>(i) % 97) + 100 * ranks * (ranks - 1) / 2;
    if (tensor[i] != static_cast<float>(sum))
      return testing::AssertionFailure() << "element " << i << " of " << tensor.size() << " is "
                                         << tensor[i] << ", not " << sum;
  }
  return testing::AssertionSuccess();
}

class SharedMemory : public WithSession {};

TEST_F(SharedMemory, IsReducedInPlace) {
  for (const std::int64_t length : lengths) {
    SharedVector<float> tensor(static_cast<std::size_t>(length));
    for (int step = 0; step < 3; ++step) {
      fill(tensor);
      allreduce(tensor, {.name = "in place", .op = ReduceOp::sum});
      EXPECT_TRUE(holds_sums(tensor));
    }
  }
}

TEST_F(SharedMemory, IsReducedIntoOther) {
  for (const std::int64_t length : lengths) {
    SharedVector<float> input(static_cast<std::size_t>(length));
    SharedVector<float> output(static_cast<std::size_t>(length));
    fill(input);
    const SharedVector<float> before = input;
    allreduce(input, output, {.name = "into other", .op = ReduceOp::sum});
    EXPECT_TRUE(holds_sums(output));
    EXPECT_EQ(input, before);
  }
}

TEST_F(SharedMemory, MixesWithOrdinaryMemoryOnOtherRanksAndOnOneSide) {
  for (const std::int64_t length : lengths) {
    SharedVector<float> shared(static_cast<std::size_t>(length));
    std::vector<float> ordinary(static_cast<std::size_t>(length));
    fill(shared);
    fill(ordinary);
    if (rank() % 2 == 0) {
      allreduce(shared, {.name = "mixed", .op = ReduceOp::sum});
      EXPECT_TRUE(holds_sums(shared));
    } else {
      allreduce(ordinary, {.name = "mixed", .op = ReduceOp::sum});
      EXPECT_TRUE(holds_sums(ordinary));
    }
    fill(shared);
    allreduce(shared, ordinary, {.name = "one side", .op = ReduceOp::sum});
    EXPECT_TRUE(holds_sums(ordinary));
  }
}

/// Each rank changes its tensor the moment its operation is done: a rank that reads late would see
/// it.
TEST_F(SharedMemory, IsLeftAloneOnceTheOperationIsDone) {
  SharedVector<float> tensor(300001);
  for (int step = 0; step < 50; ++step) {
    fill(tensor);
    allreduce(tensor, {.name = "left alone", .op = ReduceOp::sum});
    ASSERT_TRUE(holds_sums(tensor));
    std::fill(tensor.begin(), tensor.end(), -1.0F);
  }
}

TEST_F(SharedMemory, ManyAtOnceInOneBatchWithSmallOnes) {
  std::vector<SharedVector<float>> tensors;
  std::vector<Future<void>> futures;
  for (const std::int64_t length : lengths)
    fill(tensors.emplace_back(static_cast<std::size_t>(length)));
  for (std::size_t i = 0; i < tensors.size(); ++i)
    futures.push_back(
        allreduce_async(tensors[i], {.name = "many " + std::to_string(i), .op = ReduceOp::sum}));
  for (Future<void>& future : futures) future.get();
  for (const SharedVector<float>& tensor : tensors) EXPECT_TRUE(holds_sums(tensor));
}

TEST_F(SharedMemory, OutlivesTheSession) {
  SharedVector<float> tensor(5000);
  fill(tensor);
  shutdown();
  tensor.resize(10000);
  EXPECT_EQ(tensor[4999], element(0, 4999) + tensor[0]);
}

TEST(SharedMemoryWithoutASession, IsRefused) {
  EXPECT_THROW(static_cast<void>(SharedAllocator<float>()), NotInitialized);
}

}  // namespace
}  // namespace kolo::internal
